"""What tokenizer_config.json and the caller's tokenizer_config say beside what the library reads by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _core

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
# Settings that name or place things, and change no ids.
HARMLESS = {"model_max_length", "name_or_path", "padding_side", "trust_remote_code", "truncation_side", "use_fast"}
THINK_MARKERS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
)
#: what a template contains, and the markers around a tool call that follow from it
TOOL_MARKERS = (
    (("<minimax:tool_call>",), ("<minimax:tool_call>", "</minimax:tool_call>")),
    (("<|tool_call>", "<tool_call|>"), ("<|tool_call>", "<tool_call|>")),
    (("<start_function_call>",), ("<start_function_call>", "<end_function_call>")),
    (("<longcat_tool_call>",), ("<longcat_tool_call>", "</longcat_tool_call>")),
    (("<arg_key>",), ("<tool_call>", "</tool_call>")),
    (("<|tool_list_start|>",), ("<|tool_call_start|>", "<|tool_call_end|>")),
    (("<tool_call>\n<function=",), ("<tool_call>", "</tool_call>")),
    (("<tool_call>\\n<function=",), ("<tool_call>", "</tool_call>")),
    (("<|tool_calls_section_begin|>",), ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
    (("[TOOL_CALLS]",), ("[TOOL_CALLS]", "")),
    (("<tool_call>", "tool_call.name"), ("<tool_call>", "</tool_call>")),
)


class TokenizerConfig:
    """The file, and the caller's values on top. Raises NotImplementedError for a value that would change ids."""

    def __init__(self, folder: str, overrides: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.overrides = dict(overrides or {})
        self.chat_template: str | None = self.overrides.get("chat_template")
        for name in self.overrides:
            if name not in HARMLESS and name not in ("chat_template", "eos_token", "pad_token"):
                raise NotImplementedError(
                    f"tokenizer_config: {name!r} cannot be changed when loading; edit tokenizer_config.json of the folder"
                )
        self._file = _read_json(Path(folder) / "tokenizer_config.json")
        self._special = _read_json(Path(folder) / "special_tokens_map.json")

    @property
    def name(self) -> str:
        return Path(self.folder).name

    def value(self, name: str) -> tuple[bool, Any]:
        """Whether there is such a setting, and its value."""
        for source in (self.overrides, self._file, self._special):
            if name in source:
                value = source[name]
                return True, value["content"] if isinstance(value, dict) and "content" in value else value
        return False, None

    def attribute(self, name: str, native: _core.Tokenizer) -> tuple[bool, Any]:
        """As an attribute of the tokenizer: special tokens and their ids, and every setting of the file."""
        if name == "name_or_path":
            return True, self.folder
        if name in SPECIAL_TOKENS:
            return True, self.value(name)[1]
        if name.endswith("_id") and name.removesuffix("_id") in SPECIAL_TOKENS:
            text = self.value(name.removesuffix("_id"))[1]
            return True, native.token_to_id(text) if isinstance(text, str) else None
        if name == "all_special_tokens":
            tokens = [self.value(token)[1] for token in SPECIAL_TOKENS]
            return True, list(dict.fromkeys(t for t in tokens if isinstance(t, str)))
        if name == "all_special_ids":
            tokens = self.attribute("all_special_tokens", native)[1]
            return True, [i for i in map(native.token_to_id, tokens) if i is not None]
        return self.value(name)

    def template_text(self) -> str | None:
        """The chat template in use; of a folder with several, the one called default."""
        if self.chat_template is not None:
            return self.chat_template
        file = Path(self.folder) / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        template = self._file.get("chat_template")
        if isinstance(template, list):
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        if template is None:
            template = _read_json(Path(self.folder) / "chat_template.json").get("chat_template")
        return template if isinstance(template, str) else None

    def think_markers(self, native: _core.Tokenizer) -> tuple[str, str] | None:
        for start, end in THINK_MARKERS:
            if native.token_to_id(start) is not None and native.token_to_id(end) is not None:
                return start, end
        if native.token_to_id("<|channel>") is not None and native.token_to_id("<channel|>") is not None:
            return "<|channel>thought", "<channel|>"
        return None

    def tool_markers(self) -> tuple[str, str] | None:
        template = self.template_text() or ""
        for signs, markers in TOOL_MARKERS:
            if all(sign in template for sign in signs):
                return markers
        return None


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}
