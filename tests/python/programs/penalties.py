"""Penalties, in batches, where a processor sees the whole history."""
import sys

from mlx_lm import batch_generate, load
from mlx_lm.generate import BatchGenerator
from mlx_lm.sample_utils import make_logits_processors

model, tokenizer = load(sys.argv[1])
prompts = [tokenizer.encode("round and round and round"), tokenizer.encode("abcabcabc")]
for settings in (
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 1.2, "repetition_context_size": 4},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"logit_bias": {97: 3.0}, "frequency_penalty": 1.0, "frequency_context_size": 8},
):
    processors = make_logits_processors(**settings)
    result = batch_generate(
        model, tokenizer, prompts, max_tokens=12, return_token_ids=True, logits_processors=processors
    )
    print(len(processors), result.token_ids)

# One request with penalties beside one without.
generator = BatchGenerator(model, max_tokens=6, stop_tokens=[[t] for t in tokenizer.eos_token_ids])
uids = generator.insert(prompts, logits_processors=[make_logits_processors(repetition_penalty=1.5), []])
tokens = {uid: [] for uid in uids}
while responses := generator.next_generated():
    for response in responses:
        tokens[response.uid].append(response.token)
generator.close()
print([tokens[uid] for uid in uids])
