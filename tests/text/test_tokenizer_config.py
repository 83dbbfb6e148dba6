"""What tokenizer_config.json changes about a tokenizer.json, against the transformers library that mlx-lm loads with.

Only the classes for Llama go by its settings: `legacy` and `add_prefix_space` say where the space before a text goes.
add_bos_token and add_eos_token change nothing where there is a tokenizer.json, whose post-processor counts.
"""

import json

import pytest
from transformers import AutoTokenizer, logging

from hard_strings import HARD_STRINGS
from tokenizer_kinds import KINDS

logging.set_verbosity_error()

SETTINGS = [
    {}, {"legacy": True}, {"legacy": False}, {"legacy": None},
    {"add_prefix_space": True}, {"add_prefix_space": False}, {"add_prefix_space": None},
    {"legacy": True, "add_prefix_space": False}, {"legacy": True, "add_prefix_space": True},
    {"add_bos_token": False}, {"add_bos_token": True}, {"add_eos_token": True}, {"add_eos_token": False},
    {"add_bos_token": False, "add_eos_token": True, "legacy": True},
]
TEXTS = HARD_STRINGS + ["</s> x", "<s>x y<s> z", " <s> x", "\u2581x", "</s>\n<s>user\nhi</s>\n"]
LLAMA = ("LlamaTokenizer", "LlamaTokenizerFast")
CASES = [
    *(("llama2", "llama", name) for name in (*LLAMA, "CodeLlamaTokenizer", "PreTrainedTokenizerFast", None)),
    *(("metaspace_first", "llama", name) for name in (*LLAMA, "PreTrainedTokenizerFast")),
    *(("llama2", model_type, "LlamaTokenizer") for model_type in ("mistral", "iquestcoder")),
    ("byte_level_gpt2", "llama", "LlamaTokenizerFast"),
    ("byte_level_qwen", "qwen2", "Qwen2Tokenizer"),
    ("byte_level_qwen", "qwen3", "Qwen2Tokenizer"),
    ("gemma", "gemma3_text", "GemmaTokenizer"),
]


def write(folder, tokenizer, model_type, config):
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


@pytest.mark.parametrize("kind,model_type,name", CASES)
def test_settings(probe, tmp_path, kind, model_type, name):
    seen, tokenizer = set(), KINDS[kind]()
    for number, settings in enumerate(SETTINGS):
        # transformers puts pre-tokenizers of its own in place of the file's (Qwen2Tokenizer), and takes a space off
        # decoded texts that it did not write (CodeLlamaTokenizer).
        if (name, settings.get("add_prefix_space")) in [("Qwen2Tokenizer", True), ("CodeLlamaTokenizer", False)]:
            continue
        config = ({"tokenizer_class": name} if name else {}) | settings
        folder = write(tmp_path / str(number), tokenizer, model_type, config)
        reference = AutoTokenizer.from_pretrained(folder)
        probe.ask("load", folder=str(folder))
        answers = []
        for text in TEXTS:
            for special in (True, False):
                expected = reference.encode(text, add_special_tokens=special)
                assert probe.ask("encode", text=text, special=special)["ids"] == expected, (settings, text, special)
                decoded = reference.decode(expected, skip_special_tokens=False, clean_up_tokenization_spaces=False)
                assert probe.ask("decode", ids=expected)["text"] == decoded, (settings, text, special)
                answers.append(tuple(expected))
        seen.add(tuple(answers))
    # first, always, never
    assert len(seen) == (3 if name in LLAMA and model_type == "llama" and kind != "byte_level_gpt2" else 1)


def test_class_from_the_models_config(probe, tmp_path):
    """config.json may name the class where tokenizer_config.json does not."""
    folder = write(tmp_path / "model", KINDS["llama2"](), "llama", {"legacy": False})
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "tokenizer_class": "LlamaTokenizer"}))
    reference = AutoTokenizer.from_pretrained(folder)
    assert type(reference).__name__ == "LlamaTokenizer"
    probe.ask("load", folder=str(folder))
    for text in TEXTS:
        assert probe.ask("encode", text=text, special=True)["ids"] == reference.encode(text)


@pytest.mark.parametrize("kind", ["byte_level_gpt2", "byte_level_qwen", "gemma", "unigram"])
@pytest.mark.parametrize("name", ["LlamaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer", "GemmaTokenizer"])
def test_other_forms_are_what_the_file_says(probe, tmp_path, kind, name):
    """transformers puts some classes' own pre-tokenizers in place of the file's, which belong to the model."""
    settings = {"tokenizer_class": name, "legacy": False, "add_prefix_space": False, "add_eos_token": True}
    of_file = KINDS[kind]()
    folder = write(tmp_path / "model", of_file, "llama", settings)
    probe.ask("load", folder=str(folder))
    for text in TEXTS:
        for special in (True, False):
            expected = of_file.encode(text, add_special_tokens=special).ids
            assert probe.ask("encode", text=text, special=special)["ids"] == expected
