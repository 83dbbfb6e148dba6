"""The process that all tests of a module talk to."""

import pytest

from probe_client import Probe


@pytest.fixture(scope="module")
def probe():
    probe = Probe()
    yield probe
    probe.close()
