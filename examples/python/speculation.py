"""The same text, faster, with a small draft model or by looking up the prompt: speculation.py MODEL DRAFT_MODEL"""

import sys

from mlxlm import load, stream_generate

model, tokenizer = load(sys.argv[1])
draft_model, _ = load(sys.argv[2])
prompt = "Copy this line twice: the quick brown fox jumps over the lazy dog.\n"
texts = set()
for name, settings in (
    ("plain", {}),
    ("draft model", {"draft_model": draft_model, "num_draft_tokens": 4}),
    ("prompt lookup", {"prompt_lookup": True}),
):
    text = ""
    for response in stream_generate(model, tokenizer, prompt, max_tokens=60, **settings):
        text += response.text
    texts.add(text)
    guesses = f"{response.accepted_tokens} of {response.draft_tokens} guesses right"
    print(f"{name}: {response.generation_tps:.1f} tokens/s, {guesses}")
print("one text" if len(texts) == 1 else f"different texts: {texts}")
