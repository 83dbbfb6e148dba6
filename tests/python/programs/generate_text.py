"""Answers one question and prints the text."""
import sys

from mlx_lm import generate, load

model, tokenizer = load(sys.argv[1])
messages = [
    {"role": "system", "content": "Answer briefly. "},
    {"role": "user", "content": "Where does the river begin?"},
]
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
print(len(prompt), prompt[:8])
print(repr(generate(model, tokenizer, prompt=prompt, max_tokens=40)))
print(repr(generate(model, tokenizer, prompt="A plain prompt, no template", max_tokens=12, verbose=False)))
