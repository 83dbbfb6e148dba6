"""Chats in the terminal, with one prompt cache for the conversation: chat.py MODEL"""

import sys

from mlxlm import load, stream_generate
from mlxlm.models.cache import make_prompt_cache
from mlxlm.sample_utils import make_sampler

model, tokenizer = load(sys.argv[1])
cache = make_prompt_cache(model)
sampler = make_sampler(temp=0.7, top_p=0.9)
print("Ask something; an empty line ends the chat.")
while question := input("> ").strip():
    # Only what is new: the cache holds the turns before.
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
    for response in stream_generate(model, tokenizer, prompt, max_tokens=200, sampler=sampler, prompt_cache=cache):
        print(response.text, end="", flush=True)
    print(f"\n[{cache.size} tokens so far]")
