"""Answers each line of a file, many at once: batch_file.py MODEL FILE"""

import sys
from pathlib import Path

from mlxlm import batch_generate, load

model, tokenizer = load(sys.argv[1])
questions = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
prompts = [
    tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
    for question in questions
]
result = batch_generate(model, tokenizer, prompts, max_tokens=60)
for question, text, reason in zip(questions, result.texts, result.finish_reasons):
    print(f"{question}\n  {text.strip()!r} ({reason})")
print(f"{result.stats.generation_tokens} tokens, {result.stats.generation_tps:.1f} tokens/s")
