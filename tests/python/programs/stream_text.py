"""Streams an answer and looks at every field of the responses."""
import sys

from mlx_lm import load, stream_generate

model, tokenizer = load(sys.argv[1])
prompt = tokenizer.encode("Once upon a time")
text = ""
for response in stream_generate(model, tokenizer, prompt, max_tokens=30):
    text += response.text
    best = response.logprobs[response.token].item()
    print(response.token, repr(response.text), f"{best:.3f}", response.from_draft, response.finish_reason)
    assert response.prompt_tps > 0 and response.generation_tps > 0 and response.peak_memory > 0
print(response.prompt_tokens, response.generation_tokens, response.finish_reason)
print(repr(text))
