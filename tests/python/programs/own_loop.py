"""The lower level: logits of a forward pass, a loop of its own, a streaming detokenizer, progress of the prompt."""
import sys

import mlx.core as mx

from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

model, tokenizer = load(sys.argv[1])
ids = tokenizer.encode("Logits, please")

logits = model(mx.array([ids]))
print(tuple(logits.shape), [int(i) for i in logits[0].argmax(axis=-1)])

cache = make_prompt_cache(model)
model(mx.array([ids[:-1]]), cache=cache)
token, generated = ids[-1], []
for _ in range(6):
    token = int(model(mx.array([[token]]), cache=cache)[0, -1].argmax())
    generated.append(token)
print(generated, cache[0].offset)

progress, segments = [], []
detokenizer = tokenizer.detokenizer
for (token, logprobs), _ in zip(
    generate_step(
        mx.array(ids), model, max_tokens=-1, prefill_step_size=5,
        prompt_progress_callback=lambda done, total: progress.append((done, total)),
    ),
    range(10),
):
    detokenizer.add_token(token)
    segments.append(detokenizer.last_segment)
    print(token, f"{logprobs[token].item():.3f}", tuple(logprobs.shape))
detokenizer.finalize()
segments.append(detokenizer.last_segment)
print(repr("".join(segments)), repr(detokenizer.text), progress[0], progress[-1], progress == sorted(progress))
