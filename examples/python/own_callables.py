"""A sampler and a logits processor of one's own: own_callables.py MODEL"""

import sys

import numpy as np

from mlxlm import generate, load
from mlxlm.processors import forbid_strings
from mlxlm.sample_utils import make_sampler

model, tokenizer = load(sys.argv[1])


class NoRepeats:
    """Bans every pair of tokens that has appeared before. It may keep state: it is called once for each token."""

    def __init__(self):
        self.followers = {}  # token: the tokens that came after it

    def __call__(self, tokens, logits):  # [n] int32; [1, V] float32, which may be changed
        if len(tokens) > 1:
            self.followers.setdefault(int(tokens[-2]), set()).add(int(tokens[-1]))
        logits[0, list(self.followers.get(int(tokens[-1]), ()))] = -np.inf
        return logits


def coin(logprobs):  # [1, V] float32
    """One of the two most likely tokens."""
    return np.random.default_rng().choice(np.argsort(logprobs[0])[-2:])


prompt = "The colours of the rainbow are"
print("plain:     ", generate(model, tokenizer, prompt, max_tokens=30))
print("no repeats:", generate(model, tokenizer, prompt, max_tokens=30, logits_processors=[NoRepeats()]))
print("two best:  ", generate(model, tokenizer, prompt, max_tokens=30, sampler=coin))
without_red = forbid_strings(tokenizer, ["red", "Red"])
print("no red:    ", generate(model, tokenizer, prompt, max_tokens=30, logits_processors=[without_red]))
print("warm:      ", generate(model, tokenizer, prompt, max_tokens=30, sampler=make_sampler(0.8, min_p=0.05), seed=1))
