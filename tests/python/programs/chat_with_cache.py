"""A chat that keeps one prompt cache, so that each turn feeds only what is new."""
import sys

from mlx_lm import load, stream_generate
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

model, tokenizer = load(sys.argv[1])
cache = make_prompt_cache(model)
print(len(cache), type(cache[0]).__name__, cache[0].offset)
for question in ("Hello there.", "What is your name?", "And your age?"):
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
    answer = []
    for response in stream_generate(model, tokenizer, prompt, max_tokens=8, prompt_cache=cache):
        answer.append(response.token)
    print(response.prompt_tokens, answer, cache[0].offset)
print(can_trim_prompt_cache(cache), trim_prompt_cache(cache, 5), cache[0].offset)
print([r.token for r in stream_generate(model, tokenizer, [65, 66], max_tokens=5, prompt_cache=cache)])
