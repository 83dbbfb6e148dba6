"""Samplers and processors that are written with operations of mlx."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["mlx_callable"]


def mlx_callable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A sampler or logits processor that works on ``mlx.core`` arrays, for ``generate`` and its kin.

    The function gets MLX arrays in place of numpy's and may return one. Needs mlx installed::

        @mlx_callable
        def soften(tokens, logits):
            return logits * mx.array(0.5)
    """
    import mlx.core as mx

    @functools.wraps(function)
    def with_mlx(*arrays: Any) -> Any:
        result = function(*(mx.array(array) for array in arrays))
        if not isinstance(result, mx.array):
            return result
        if mx.issubdtype(result.dtype, mx.floating):
            result = result.astype(mx.float32)
        return np.array(result)

    return with_mlx
