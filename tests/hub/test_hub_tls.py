"""HTTPS: a certificate of an authority that is trusted, and others."""

import ssl
import subprocess

import pytest

from conftest import IO, REPO, Machine, contents
from hub_server import Hub


def openssl(folder, *args):
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """ca.pem, an authority made for this test, and server.pem, which it signed for 127.0.0.1 and localhost."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test CA", "-days", "2")
    openssl(folder, "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
            "server.pem", "-days", "2", "-extfile", "extensions")
    return folder


@pytest.fixture
def secure_hub(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    hub = Hub(tls=context)
    yield hub
    hub.close()


@pytest.fixture
def machine(secure_hub, tmp_path):
    return Machine(secure_hub, tmp_path / "home")


def test_a_trusted_authority(secure_hub, machine, certificates, files, wanted):
    secure_hub.add(REPO, files)
    secure_hub.fail("/cdn/", cut_after=100_000)
    assert contents(machine.downloads(SSL_CERT_FILE=str(certificates / "ca.pem"))) == wanted


def test_an_unknown_authority_is_not_asked_again(secure_hub, machine, certificates, files):
    secure_hub.add(REPO, files)
    message = machine.fails(IO, SSL_CERT_FILE="")  # Mozilla's authorities know nothing of ours
    assert "certificate" in message.lower() and "tried" not in message
    assert secure_hub.requests == []
    assert "certificate" in machine.fails(IO, SSL_CERT_FILE=str(certificates / "server.key")).lower()
    assert "SSL_CERT_FILE" in machine.fails(11, SSL_CERT_FILE="/nowhere/ca.pem")


def test_http_where_https_is_spoken(secure_hub, machine, certificates):
    url = secure_hub.url.replace("https://", "http://")
    assert url in machine.fails(IO, HF_ENDPOINT=url)
