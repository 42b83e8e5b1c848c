"""A copy of the project with a few lines more, its core built without optimization, for tests of extensions."""

import os
import shutil
import subprocess
import sys

import pytest

from support.shared_files import ROOT

COPIED = ("Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "rust", "python", "tests", "docs")


class ChangedTree:
    """The copy, below ``target``; the first build takes some CPU minutes, later ones what has changed."""

    def __init__(self, name: str) -> None:
        self.folder = ROOT / "target" / name
        self.path = self.folder / "tree"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        for file in COPIED:
            if (ROOT / file).is_dir():
                shutil.copytree(ROOT / file, self.path / file, ignore=ignored)
            else:
                shutil.copy2(ROOT / file, self.path / file)

    def insert(self, file: str, before: str, lines: str) -> None:
        """Insert lines before the one line of a file that begins with ``before``."""
        text = (self.path / file).read_text()
        assert text.count(f"\n{before}") == 1, f"{file}: {before}"
        (self.path / file).write_text(text.replace(f"\n{before}", f"\n{lines}{before}"))

    def replace(self, file: str, old: str, new: str) -> None:
        """Replace the one occurrence of a text in a file."""
        text = (self.path / file).read_text()
        assert text.count(old) == 1, f"{file}: {old}"
        (self.path / file).write_text(text.replace(old, new))

    def build(self) -> None:
        """Build the copy's core."""
        if shutil.which("cargo") is None:
            pytest.fail("cargo not found: this test builds the core of a changed tree", pytrace=False)
        fast = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0", "PYO3_PYTHON": sys.executable}
        target = {"CARGO_TARGET_DIR": str(self.folder / "build")}
        features = ["--features", "pyo3/extension-module"]
        cargo = ["cargo", "build", "--locked", "--quiet", "-p", "kvsim-py", *features]
        done = subprocess.run(
            cargo, cwd=self.path, env=os.environ | fast | target, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        shutil.copy(self.folder / "build/debug/lib_core.so", self.path / "python/kvcache_sim/_core.abi3.so")

    def python(self, *arguments: str, code: int = 0) -> str:
        """Run Python on the copy alone and return what it printed."""
        # compiled once in the copy, in spite of the environment: each of these starts would compile everything again
        environment = os.environ | {"PYTHONPATH": str(self.path / "python"), "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def kvsim(self, *arguments: str, code: int = 0) -> str:
        """Run a command of the copy and return what it printed."""
        return self.python("-m", "kvcache_sim", *arguments, code=code)
