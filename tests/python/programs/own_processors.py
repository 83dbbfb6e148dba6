"""Bans tokens, pushes one, and counts what its processors see."""
import sys

import mlx.core as mx

from mlx_lm import generate, load, stream_generate
from mlx_lm.sample_utils import make_logits_processors
# mlxlm: from mlx_lm.interop import mlx_callable

model, tokenizer = load(sys.argv[1])
vowels = [tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "aeiou"]
calls = []


def no_vowels(tokens, logits):
    calls.append(tuple(logits.shape))
    logits[:, vowels] = -float("inf")
    return logits


# mlxlm: @mlx_callable
def flatten(tokens, logits):
    return logits * mx.array(0.5)


processors = [no_vowels, flatten] + make_logits_processors(logit_bias={vowels[0]: 100.0, 66: 1.5})
tokens = [r.token for r in stream_generate(model, tokenizer, "Processors", max_tokens=20, logits_processors=processors)]
print(tokens)
print(len([t for t in tokens if t in vowels]), sorted(set(calls)), len(calls) >= 20)
print(repr(generate(model, tokenizer, "Again", max_tokens=10, logits_processors=[no_vowels])))
