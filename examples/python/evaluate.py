"""A small evaluation that anyone can repeat to the last digit: evaluate.py MODEL"""

import hashlib
import sys

import numpy as np

import mlxlm
from mlxlm import batch_generate, load, stream_generate
from mlxlm.sample_utils import make_sampler

QUESTIONS = ["2 + 2 =", "The capital of France is", "Water boils at"]
ENDINGS = [" 4", " Paris", " 100"]

model, tokenizer = load(sys.argv[1], precision="exact")

# The log-probability of an ending: one forward pass, all positions.
for question, ending in zip(QUESTIONS, ENDINGS):
    start, rest = tokenizer.encode(question), tokenizer.encode(ending, add_special_tokens=False)
    logits = model(start + rest)[len(start) - 1 : -1].astype(np.float64)
    logprobs = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)
    print(f"{question}{ending}: {logprobs[range(len(rest)), rest].sum():.6f}")

# Samples: one seed for the program; alone or in a batch, the tokens are the same.
sampler = make_sampler(temp=0.8)
mlxlm.random.seed(0)
alone = [[r.token for r in stream_generate(model, tokenizer, q, 20, sampler=sampler)] for q in QUESTIONS]
mlxlm.random.seed(0)
prompts = [tokenizer.encode(q) for q in QUESTIONS]
batch = batch_generate(model, tokenizer, prompts, max_tokens=20, sampler=sampler, return_token_ids=True)
ids = [[t for t in row if t not in tokenizer.eos_token_ids] for row in alone]
print("alone and in a batch:", "the same" if ids == batch.token_ids else "different")
print("fingerprint:", hashlib.sha256(repr(ids).encode()).hexdigest()[:16])
