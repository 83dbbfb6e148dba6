"""Many asyncio tasks share one batch, and each gets its own stream: serve_many.py MODEL"""

import asyncio
import sys

from mlxlm import load
from mlxlm.generate import BatchGenerator
from mlxlm.sample_utils import make_sampler


async def answer(batch, tokenizer, question):
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
    text = ""
    async for response in batch.stream(prompt, max_tokens=40, sampler=make_sampler(0.7), seed=1):
        text += response.text
    return text


async def main():
    model, tokenizer = load(sys.argv[1])
    questions = [f"Name {n} animals." for n in range(1, 9)]
    stops = [[i] for i in tokenizer.eos_token_ids]
    with BatchGenerator(model, stop_tokens=stops) as batch:
        answers = await asyncio.gather(*(answer(batch, tokenizer, q) for q in questions))
    for question, text in zip(questions, answers):
        print(f"{question} {text.strip()!r}")


asyncio.run(main())
