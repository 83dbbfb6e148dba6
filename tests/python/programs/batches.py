"""Many prompts at once, each with its own limit."""
import sys

from mlx_lm import batch_generate, load

model, tokenizer = load(sys.argv[1])
prompts = [tokenizer.encode(text) for text in ("One", "Two prompts of different lengths", "Three, four, five")]
result = batch_generate(
    model, tokenizer, prompts, max_tokens=[6, 9, 12], return_token_ids=True, return_logprobs=True,
    return_prompt_caches=True,
)
for text, ids, logprobs, cache in zip(result.texts, result.token_ids, result.logprobs, result.caches):
    print(repr(text), ids, [f"{x:.2f}" for x in logprobs], len(cache), cache[0].offset > 0)
print(result.stats.prompt_tokens, result.stats.generation_tokens, result.stats.peak_memory > 0)
again = batch_generate(model, tokenizer, [[67], [68, 69], [70]], prompt_caches=result.caches, max_tokens=4)
print(again.texts, again.caches, again.token_ids, again.logprobs)
