"""The documentation site builds without a warning, with the API of the package and the files that its pages link to."""
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path):
    run = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path], cwd=ROOT,
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    pages = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html") if page.name != "404.html"}
    for page, text in pages.items():
        for link in re.findall(r'<a[^>]* href="([^"#:]+)(?:#[^"]*)?"', text):
            assert (page.parent / unquote(link)).exists(), f"{page.relative_to(tmp_path)} links to {link}"
    api = pages[tmp_path / "api.html"]
    for name in ("mlxlm.utils.load", "mlxlm.generate.stream_generate", "mlxlm.models.llm.MLXLanguageModel.chat",
                 "mlxlm.sample_utils.make_sampler", "mlxlm.models.cache.save_prompt_cache"):
        assert f'id="{name}"' in api, name
