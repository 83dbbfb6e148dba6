"""Arrays and lists of callers become what the extension takes, and wrong ones errors that say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

TokenArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


def as_numpy(value: Any) -> npt.NDArray[Any]:
    """numpy's view of an array of any library, through the buffer protocol, ``__array__`` or DLPack."""
    if isinstance(value, np.ndarray):
        return value
    try:
        array = np.asarray(value)
    except Exception:
        if not hasattr(value, "__dlpack__"):
            raise
        return np.from_dlpack(value)
    if array.dtype == object and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return array


def token_ids(value: Any, name: str = "prompt") -> TokenArray:
    """Ids in one dimension as a contiguous int32 array."""
    if isinstance(value, str):
        raise TypeError(f"{name}: expected token ids, got text; encode it first")
    if value is None or isinstance(value, (bytes, int, float)):
        raise TypeError(f"{name}: expected a list or an array of token ids, got {type(value).__name__}")
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (str, dict)):
        what = "texts" if isinstance(value[0], str) else "messages"
        advice = "encode one" if what == "texts" else "give what tokenizer.apply_chat_template makes of them"
        raise TypeError(f"{name}: expected token ids, got a list of {what}; {advice}")
    try:
        array = as_numpy(value)
    except Exception as error:
        raise TypeError(f"{name}: expected token ids, got {type(value).__name__} ({error})") from error
    if array.ndim != 1:
        raise ValueError(f"{name}: expected token ids in one dimension, got the shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > np.iinfo(np.int32).max:
        raise ValueError(f"{name}: expected ids of at least 0 that fit 32 bits, got {low if low < 0 else high}")
    return np.ascontiguousarray(array, np.int32)


def as_floats(value: Any, name: str) -> FloatArray:
    """A float32 array with the values of any array of floats; the same object where it is one already."""
    try:
        array = as_numpy(value)
    except Exception as error:
        raise TypeError(
            f"{name}: expected an array of floats, got {type(value).__name__}, which numpy cannot read ({error}); "
            "convert it to float32"
        ) from error
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name}: expected an array of floats, got {array.dtype}")
    return np.ascontiguousarray(array, np.float32)


def as_logits(result: Any, vocab_size: int, name: str) -> FloatArray:
    """What a logits processor returned, [1, vocab_size] or [vocab_size]."""
    if result is None:
        raise TypeError(f"{name}: expected it to return the logits, got None; end it with 'return logits'")
    array = as_floats(result, name)
    if array.shape not in ((vocab_size,), (1, vocab_size)):
        raise ValueError(f"{name}: expected logits of the shape (1, {vocab_size}), got {array.shape}")
    return array


def refuse_logits(name: str) -> None:
    raise ValueError(f"{name}: expected finite logits, and -inf for what is banned; it left NaN or +inf")


def as_token(result: Any, name: str) -> int:
    """What a sampler returned: an integer, or an array of integers with one element."""
    if result is None:
        raise TypeError(f"{name}: expected it to return a token id, got None")
    try:
        array = as_numpy(result)
    except Exception as error:
        raise TypeError(f"{name}: expected a token id, got {type(result).__name__} ({error})") from error
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected an integer, got {array.dtype}")
    if array.size != 1:
        raise ValueError(f"{name}: expected one token id, got the shape {array.shape}")
    token = int(array.reshape(-1)[0])
    if not 0 <= token <= np.iinfo(np.int32).max:
        raise ValueError(f"{name}: expected a token id, got {token}")
    return token
