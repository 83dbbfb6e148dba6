"""Samples with functions of its own: one takes the runner-up, one restricts the built-in filters."""
import sys

import mlx.core as mx

from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import apply_min_p, apply_top_k, make_sampler
# mlxlm: from mlx_lm.interop import mlx_callable

model, tokenizer = load(sys.argv[1])


# mlxlm: @mlx_callable
def runner_up(logprobs):
    order = mx.argsort(logprobs, axis=-1)
    return order[..., -2]


def narrow(logprobs):
    kept = apply_top_k(apply_min_p(logprobs, 0.01, 3), 2)
    return kept.argmax(axis=-1)


for sampler in (runner_up, narrow, make_sampler(temp=0.0, top_p=0.9), make_sampler(0.8, top_k=1)):
    tokens = [r.token for r in stream_generate(model, tokenizer, "Sample this", max_tokens=16, sampler=sampler)]
    print(tokens)
