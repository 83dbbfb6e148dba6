"""Answers one question: answer.py MODEL [QUESTION]"""

import sys

from mlxlm import load, stream_generate

model, tokenizer = load(sys.argv[1])
question = sys.argv[2] if len(sys.argv) > 2 else "Why is the sky blue?"
prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
for response in stream_generate(model, tokenizer, prompt, max_tokens=200):
    print(response.text, end="", flush=True)
print()
