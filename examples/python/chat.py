"""Chats in the terminal, with one prompt cache for the conversation: chat.py MODEL"""

import sys

from mlxlm import load, stream_generate
from mlxlm.models.cache import make_prompt_cache
from mlxlm.sample_utils import make_sampler

model, tokenizer = load(sys.argv[1])
cache = make_prompt_cache(model)
sampler = make_sampler(temp=0.7, top_p=0.9)
messages = []
print("Ask something; an empty line ends the chat.")
while question := input("> ").strip():
    messages.append({"role": "user", "content": question})
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    # The cache goes back to what it shares with the whole conversation; only the rest is computed.
    held = list(cache.tokens)
    known = next((i for i, pair in enumerate(zip(held, prompt[:-1])) if pair[0] != pair[1]), min(len(held), len(prompt) - 1))
    cache.trim(len(held) - known)
    answer = ""
    for response in stream_generate(
        model, tokenizer, prompt[known:], max_tokens=200, sampler=sampler, prompt_cache=cache
    ):
        print(response.text, end="", flush=True)
        answer += response.text
    messages.append({"role": "assistant", "content": answer})
    print(f"\n[{known} of {len(prompt)} tokens were known]")
