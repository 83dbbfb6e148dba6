"""llama.cpp, from the source package of llama-cpp-python, compiled for this processor.

Speed: a fresh Python process that calls llama_decode and nothing else, with and without flash attention; the better one
counts. Start: a native program (llama_cpp_start.c), since Python's own start would be unfair.
"""

import ctypes
import json
import random
import subprocess
import sys
import time
from pathlib import Path

NAME = "llama.cpp"
MICRO_BATCH = 512
FIRST_ORDINARY_TOKEN = 1000  # beyond the special tokens of every vocabulary in use


def environment():
    import environment as module  # bench/run put bench/ on the path

    return module


def start_program():
    return environment().VENV / "llama_cpp_start"


def prepare():
    """Compiles the start program against the library and headers that the Python package brought."""
    source = Path(__file__).with_name("llama_cpp_start.c")
    program = start_program()
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return
    packages = environment().site_packages()
    libraries = packages / "llama_cpp" / "lib"
    command = ["cc", "-O2", "-o", program, source, f"-I{packages / 'include'}", f"-L{libraries}", "-lllama", "-lggml",
               "-lggml-base", "-lggml-cpu", f"-Wl,-rpath,{libraries}"]
    subprocess.run([str(word) for word in command], check=True)


def speed(settings):
    best = {}
    for flash_attention in (0, 1):
        command = [environment().PYTHON, "-I", __file__, settings.gguf, settings.threads, settings.prefill, settings.decode,
                   settings.depth, settings.batch, flash_attention]
        result = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
        for key, value in json.loads(result.stdout).items():
            best[key] = max(value, best.get(key, 0))
    return best


def start_command(settings):
    return [start_program(), settings.gguf, settings.threads]


class Engine:
    """The least that decoding needs, through the package's ctypes bindings."""

    def __init__(self, path, threads, n_ctx, sequences, flash_attention):
        import llama_cpp

        self.api = llama_cpp
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)  # must outlive the library's calls
        llama_cpp.llama_log_set(self.silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp could not load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx * sequences
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = MICRO_BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = flash_attention
        params.no_perf = True
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def decode(self, tokens):
        array = (self.api.llama_token * len(tokens))(*tokens)
        status = self.api.llama_decode(self.context, self.api.llama_batch_get_one(array, len(tokens)))
        if status != 0:
            sys.exit(f"llama_decode: expected 0, got {status}")

    def decode_together(self, tokens, position):
        """One token of each sequence, all at this position."""
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, True
            batch.seq_id[i][0] = i
        status = self.api.llama_decode(self.context, batch)
        self.api.llama_batch_free(batch)
        if status != 0:
            sys.exit(f"llama_decode of {len(tokens)} sequences: expected 0, got {status}")

    def clear(self):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def timed(self, batches):
        """Seconds for decoding the batches one after the other."""
        self.api.llama_synchronize(self.context)
        started = time.perf_counter()
        for batch in batches:
            self.decode(batch)
        self.api.llama_synchronize(self.context)
        return time.perf_counter() - started


def chunks(tokens):
    return [tokens[i : i + MICRO_BATCH] for i in range(0, len(tokens), MICRO_BATCH)]


def main(path, threads, prefill, decode, depth, sequences, flash_attention):
    engine = Engine(path, threads, depth + max(prefill, decode) + 8, sequences, flash_attention)
    rng = random.Random(0)

    def draw(n):
        return [rng.randrange(FIRST_ORDINARY_TOKEN, engine.n_vocab) for _ in range(n)]

    engine.timed([draw(32), *[[t] for t in draw(4)]])  # warm: pages mapped, threads started
    results = {}
    for key, batches in (("prefill_tps", chunks(draw(prefill))), ("decode_tps", [[t] for t in draw(decode)])):
        engine.clear()
        engine.timed(chunks(draw(depth)))
        results[key] = sum(map(len, batches)) / engine.timed(batches)
    if sequences > 1:
        engine.clear()
        for position in range(depth):
            engine.decode_together(draw(sequences), position)
        started = time.perf_counter()
        for step in range(decode):
            engine.decode_together(draw(sequences), depth + step)
        engine.api.llama_synchronize(engine.context)
        results["decode_tps"] = sequences * decode / (time.perf_counter() - started)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
