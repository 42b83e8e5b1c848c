"""Plants each fault of ``planted_faults`` in a copy of the project and tells whether its test file sees it.

``make faults``, or ``python tests/plant.py WORD…`` for the faults whose name has a word. A fault in Rust costs a
build of the core (without link-time optimisation, kept in ``target/faults``). Exit code 1: one survived; 2: a test
file fails without any.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = "python/kvcache_sim/_core.abi3.so"
BUILD = ["cargo", "build", "--release", "--quiet", "-p", "kvsim-py", "--features", "pyo3/extension-module"]
FAST = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
}
TIMEOUT_S = 1_800


@dataclass(frozen=True, slots=True)
class Fault:
    """One change that makes the project wrong, and the test file that a maintainer would run first.

    A test file in Rust stands for the core's own tests.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str


def faults() -> list[Fault]:
    """Return the committed faults."""
    files = sorted((ROOT / "tests" / "planted_faults").glob("*.toml"))
    return [Fault(**row) for file in files for row in tomllib.loads(file.read_text())["fault"]]


def copy_project(target: Path) -> None:
    """Copy what git keeps, and the built core."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in [*filter(None, listed.stdout.split("\0")), CORE]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)  # files of now: what was built of the last fault is stale
    if (ROOT.parent / "shared").exists():
        (target.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())


def build(project: Path) -> None:
    """Build the core of the copy into its package."""
    kept = ROOT / "target" / "faults"
    environment = {**os.environ, **FAST, "CARGO_TARGET_DIR": str(kept)}
    subprocess.run(BUILD, cwd=project, env=environment, check=True)
    shutil.copy2(kept / "release" / "lib_core.so", project / CORE)


def caught(fault: Fault, project: Path) -> bool:
    """Plant a fault in a sound copy of the project, run its test file, and take it out again."""
    path, core = project / fault.file, project / CORE
    sound, sound_core = path.read_text(), core.read_bytes()
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        if path.suffix == ".rs" and not fault.tests.endswith(".rs"):
            build(project)
        return fails(project, fault.tests)
    finally:
        path.write_text(sound)
        core.write_bytes(sound_core)


def fails(project: Path, tests: str) -> bool:
    """Return whether a test fails; raises RuntimeError where they could not be run."""
    if tests.endswith(".rs"):
        return core_tests_fail(project)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    environment = {**os.environ, "PYTHONPATH": str(project / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest {tests}: exit code {done.returncode}\n{done.stdout[-2000:]}")
    return done.returncode == 1


def core_tests_fail(project: Path) -> bool:
    """Return whether one of the core's own tests fails; raises RuntimeError where they cannot be built."""
    environment = {**os.environ, **FAST, "CARGO_TARGET_DIR": str(ROOT / "target" / "faults")}
    command = ["cargo", "test", "--release", "--quiet", "-p", "kvsim-core", "--lib"]
    subprocess.run([*command, "--no-run"], cwd=project, env=environment, check=True)
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=TIMEOUT_S)
    return done.returncode != 0


def main(words: list[str]) -> int:
    """Plant the faults that were asked for, all without a word; return the exit code."""
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="kvsim-faults-") as directory:
        project = Path(directory) / "project"
        copy_project(project)
        chosen = [f for f in faults() if not words or any(word in f.name for word in words)]
        broken = [tests for tests in sorted({f.tests for f in chosen}) if fails(project, tests)]
        if broken:
            print(f"fails without a fault: {', '.join(broken)}")
            return 2
        for fault in chosen:
            begin = time.monotonic()
            seen = caught(fault, project)
            survivors += not seen
            verdict = "caught  " if seen else "SURVIVED"
            print(f"{verdict} {time.monotonic() - begin:5.0f} s  {fault.name}  ({fault.tests})", flush=True)
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
