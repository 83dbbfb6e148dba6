"""Feeds a long text once, saves the cache, and asks two questions of it later."""
import os
import sys
import tempfile

import mlx.core as mx

from mlx_lm import generate, load
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache

model, tokenizer = load(sys.argv[1])
text = tokenizer.encode("The archive holds letters from three centuries. " * 4)

cache = make_prompt_cache(model)
for _ in generate_step(mx.array(text), model, max_tokens=0, prompt_cache=cache):
    pass
print(cache[0].offset)
path = os.path.join(tempfile.mkdtemp(), "archive.safetensors")
save_prompt_cache(path, cache, metadata={"model": "tiny", "purpose": "archive"})
for question in (" Who wrote them?", " When?"):
    loaded, metadata = load_prompt_cache(path, return_metadata=True)
    print(sorted(metadata.items()), loaded[0].offset)
    print(repr(generate(model, tokenizer, question, max_tokens=10, prompt_cache=loaded)), loaded[0].offset)
