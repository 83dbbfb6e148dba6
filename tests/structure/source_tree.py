"""The files of the project, as the structure tests see them. Standard library only."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP_SUFFIXES = {".h", ".cc", ".inl"}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)


def project_files():
    """Tracked files and new ones that git does not ignore; all files where there is no git (a source archive)."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        paths = [ROOT / name for name in names if name]
    else:
        skip = re.compile(r"^(build[^/]*|rust/target|\.venv[^/]*)(/|$)")
        paths = [p for p in ROOT.rglob("*") if not skip.match(str(p.relative_to(ROOT)))]
    return sorted(p for p in paths if p.is_file())


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def cpp_files():
    """C++ files of include/ and src/."""
    files = [p for p in project_files() if p.suffix in CPP_SUFFIXES and name_of(p).startswith(("include/", "src/"))]
    assert len(files) > 10, f"expected the sources below {ROOT}, found {len(files)}"
    return files


def includes(path):
    """(line number, '<' or '"', target) of every #include line."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)) for m in INCLUDE.finditer(text)]
