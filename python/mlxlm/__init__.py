"""mlx-lm's text generation on any CPU, with the same tokens every time.

The names, defaults and meanings are those of mlx_lm: ``from mlxlm import load, generate``.
"""

from . import random
from ._core import __version__
from .convert import convert
from .generate import batch_generate, generate, stream_generate
from .utils import load

__all__ = ["__version__", "batch_generate", "convert", "generate", "load", "random", "stream_generate"]
