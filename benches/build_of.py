"""Another commit of this repository, built in a scratch worktree that is kept between calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Ignored by git: one folder per commit.
SCRATCH = ROOT / "target" / "bench"


def build_of(commit: str) -> Path:
    """Return the ``python`` folder of a commit, with its core built for release, or of a built checkout.

    Raises:
        CalledProcessError: If the build fails.
    """
    if (Path(commit) / "kvcache_sim").is_dir():
        return Path(commit).resolve()
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    tree = SCRATCH / full[:12]
    core = tree / "python" / "kvcache_sim" / "_core.abi3.so"
    if core.exists():
        return tree / "python"
    if not tree.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", "--force", str(tree), full)
    target = SCRATCH / "target"
    command = [
        "cargo",
        "build",
        "--release",
        "--quiet",
        "-p",
        "kvsim-py",
        "--features",
        "pyo3/extension-module",
    ]
    subprocess.run(command, check=True, cwd=tree, env={**os.environ, "CARGO_TARGET_DIR": str(target)})
    subprocess.run([sys.executable, "-m", "compileall", "-q", "python"], check=False, cwd=tree)
    built = target / "release" / ("lib_core.dylib" if sys.platform == "darwin" else "lib_core.so")
    shutil.copy(built, core.with_suffix(".new"))
    core.with_suffix(".new").rename(core)
    return tree / "python"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()
