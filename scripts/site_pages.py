"""Hooks of mkdocs.yml: pages for the files outside docs/ that the pages link to, and the API page of the Python package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".py": "python", ".cmake": "cmake"}

API_MODULES = {
    "mlxlm.utils": "Loading models",
    "mlxlm.model": "The model",
    "mlxlm.tokenizer_utils": "Tokenizers",
    "mlxlm.generate": "Generating text",
    "mlxlm.sample_utils": "Samplers and processors",
    "mlxlm.processors": "Ready-made processors and grammars",
    "mlxlm.models.cache": "Prompt caches",
    "mlxlm.models.llm": "MLXLanguageModel",
    "mlxlm.convert": "Converting models",
    "mlxlm.interop": "Arrays of other libraries",
    "mlxlm.random": "Seeds",
}


def page_of(path: str) -> str:
    """Where the site has the page of a file of the project; links in that page lead from there."""
    return f"files/{path.rstrip('/')}" + ("" if path.endswith(".md") else ".md")


def content_of(path: Path) -> str:
    name = path.relative_to(ROOT)
    if path.is_dir():
        parts = [content_of(p) for p in sorted(path.iterdir()) if p.suffix in LANGUAGES]
        return f"# {name}\n\n" + "\n\n".join(p.replace("# ", "## ", 1) for p in parts)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        # Its links are relative to the project's root, which the site does not have.
        return re.sub(r"(?<!!)\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text))
    return f"# {name}\n\n```{LANGUAGES.get(path.suffix, 'text')}\n{text}```\n"


def api_page() -> str:
    parts = ["# Python API", "Made from the docstrings of the package. [Python](python.md) shows how the parts are used."]
    for module, title in API_MODULES.items():
        parts.append(f"## {title}\n\n::: {module}\n    options:\n      heading_level: 3")
    return "\n\n".join(parts)


def on_files(files: Files, config: Any) -> Files:
    linked: set[str] = set()
    for file in files.documentation_pages():
        linked.update(match[1] for match in OUTSIDE.finditer(file.content_string))
    for path in sorted(linked):
        files.append(File.generated(config, page_of(path), content=content_of(ROOT / path)))
    files.append(File.generated(config, "api.md", content=api_page()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(lambda match: f"]({page_of(match[1])}{match[2] or ''})", markdown)
