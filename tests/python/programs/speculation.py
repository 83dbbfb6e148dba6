"""The same text with and without a draft model."""
import sys

from mlx_lm import generate, load, stream_generate

model, tokenizer = load(sys.argv[1])
draft_model, _ = load(sys.argv[2])
plain = [r.token for r in stream_generate(model, tokenizer, "Guess ahead", max_tokens=24)]
drafted = []
for response in stream_generate(
    model, tokenizer, "Guess ahead", max_tokens=24, draft_model=draft_model, num_draft_tokens=3
):
    assert response.from_draft in (True, False)
    drafted.append(response.token)
print(plain, drafted == plain, response.finish_reason)
print(repr(generate(model, tokenizer, "Guess", max_tokens=9, draft_model=draft_model)))
