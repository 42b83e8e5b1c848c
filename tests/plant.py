"""Plant each fault of ``planted_faults`` in a copy of the project; report if its test file catches it.

    python tests/plant.py [WORD...] [--part K/N] [--results FILE] [--before FILE] [--again]

``make faults``, or with words the faults whose name has one. A fault in Rust costs an incremental build of
the core without optimisation across crates. Verdicts are kept in a file (``target/faults/verdicts.jsonl``): a
fault that was judged with the same product and tests is not run again, unless ``--again`` is given. ``--part
2/3`` plants the second third, in a copy and a build folder of its own, so that parts can run at the same time
and share the file. ``--before`` prints each fault's verdict next to its verdict in an earlier file. Exit code
1: one survived; 2: a test file fails without any, or a fault does not build.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault_verdicts import (
    BROKEN,
    CAUGHT,
    NO_BUILD,
    SURVIVED,
    Verdict,
    Verdicts,
    digest_of_tests,
    product_digest,
    table,
)

ROOT = Path(__file__).resolve().parents[1]
CORE = "python/kvcache_sim/_core.abi3.so"
BUILD = ["cargo", "build", "--release", "--quiet", "-p", "kvsim-py", "--features", "pyo3/extension-module"]
#: Quicker to build than a release, with the same decisions: neither has debug assertions or checks of overflow.
FAST = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
    "CARGO_PROFILE_RELEASE_DEBUG": "0",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
}
VERDICTS = ROOT / "target" / "faults" / "verdicts.jsonl"
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


def part_of(chosen: list[Fault], part: tuple[int, int]) -> list[Fault]:
    """Return the k-th of n parts, of each language as many; faults of one test file stand together."""
    k, n = part
    found = []
    for is_rust in (False, True):
        own = sorted(
            (f for f in chosen if f.file.endswith(".rs") == is_rust), key=lambda f: (f.tests, f.name)
        )
        found += own[len(own) * (k - 1) // n : len(own) * k // n]
    return found


class Copy:
    """A copy of the project in a folder that is kept, so that a build begins where the last one ended."""

    def __init__(self, part: tuple[int, int]) -> None:
        own = hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
        name = "{}-of-{}".format(*part)
        self.path = Path(tempfile.gettempdir()) / f"kvsim-faults-{own}" / name / "project"
        self._built = ROOT / "target" / "faults" / name
        self._environment = {**os.environ, **FAST, "CARGO_TARGET_DIR": str(self._built)}

    def refresh(self) -> None:
        """Bring the copy to what git keeps here, and the built core; leave files alone that are the same."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()} | {CORE}
        for file in list(self.path.rglob("*")):
            if file.is_file() and str(file.relative_to(self.path)) not in names:
                file.unlink()
        for name in names:
            target, text = self.path / name, (ROOT / name).read_bytes()
            if not target.exists() or target.read_bytes() != text:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)
        shared = self.path.parent / "shared"
        if (ROOT.parent / "shared").exists() and not shared.exists():
            shared.symlink_to((ROOT.parent / "shared").resolve())

    def judge(self, fault: Fault) -> str:
        """Plant a fault, run its test file, take the fault out again; return the verdict."""
        path, core = self.path / fault.file, self.path / CORE
        sound, sound_core = path.read_text(), core.read_bytes()
        path.write_text(sound.replace(fault.old, fault.new))
        try:
            if path.suffix == ".rs" and not fault.tests.endswith(".rs"):
                self._build()
            return CAUGHT if self.fails(fault.tests) else SURVIVED
        except subprocess.TimeoutExpired:
            return CAUGHT
        except subprocess.CalledProcessError:
            return NO_BUILD
        finally:
            path.write_text(sound)
            core.write_bytes(sound_core)

    def _build(self) -> None:
        subprocess.run(BUILD, cwd=self.path, env=self._environment, check=True)
        shutil.copy2(self._built / "release" / "lib_core.so", self.path / CORE)

    def fails(self, tests: str) -> bool:
        """Return whether a test of a file fails; one in Rust stands for the core's own tests.

        Raises:
            RuntimeError: The tests could not be run.
        """
        if tests.endswith(".rs"):
            return self._core_tests_fail()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
        path = {"PYTHONPATH": str(self.path / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command,
            cwd=self.path,
            env={**os.environ, **path},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"pytest {tests}: exit code {done.returncode}\n{done.stdout[-2000:]}")
        return done.returncode == 1

    def _core_tests_fail(self) -> bool:
        # with the core's assertions of the invariants and checks of overflow, as `make test`
        command = ["cargo", "test", "--profile", "checked", "--quiet", "-p", "kvsim-core", "--lib"]
        where = {"cwd": self.path, "env": self._environment}
        subprocess.run([*command, "--no-run"], check=True, **where)
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, **where)
        return done.returncode != 0


class Judge:
    """Judges faults, and test files without any, unless a verdict that is kept still holds."""

    def __init__(self, project: Copy, verdicts: Verdicts, again: bool) -> None:
        self._project = project
        self._verdicts = verdicts
        self._again = again
        self._product = product_digest(ROOT)

    def _digest(self, *parts: str) -> str:
        return hashlib.sha256("\0".join([self._product, *parts]).encode()).hexdigest()

    def _found(self, name: str, digest: str, tests: str, judge: Callable[[], str]) -> tuple[Verdict, bool]:
        known = None if self._again else self._verdicts.find(name, digest)
        if known is not None:
            return known, False
        begin = time.monotonic()
        found = Verdict(name, judge(), round(time.monotonic() - begin, 1), digest, tests)
        self._verdicts.add(found)
        return found, True

    def sound(self, tests: str) -> bool:
        """Return whether a test file passes without a fault."""
        digest = self._digest(digest_of_tests(ROOT, tests))
        found, _ = self._found(
            f"sound: {tests}", digest, tests, lambda: BROKEN if self._project.fails(tests) else "sound"
        )
        return found.verdict != BROKEN

    def fault(self, fault: Fault) -> Verdict:
        """Return the verdict on a fault, and print it."""
        digest = self._digest(digest_of_tests(ROOT, fault.tests), fault.file, fault.old, fault.new)
        found, is_new = self._found(fault.name, digest, fault.tests, lambda: self._project.judge(fault))
        kept = "" if is_new else ", kept"
        print(f"{found.verdict:<9} {found.seconds:5.0f} s  {fault.name}  ({fault.tests}{kept})", flush=True)
        return found


def _part(text: str) -> tuple[int, int]:
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise argparse.ArgumentTypeError(f"{text}; expected K/N with K from 1 to N, such as 2/3")
    return k, n


def main(arguments: list[str]) -> int:
    """Plant the requested faults, or all without a word; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N")
    parser.add_argument("--results", type=Path, default=VERDICTS, metavar="FILE")
    parser.add_argument("--before", type=Path, metavar="FILE")
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args(arguments)
    chosen = [f for f in faults() if not asked.words or any(word in f.name for word in asked.words)]
    chosen = part_of(chosen, asked.part)
    project = Copy(asked.part)
    project.refresh()
    judge = Judge(project, Verdicts(asked.results), asked.again)
    broken = [tests for tests in sorted({f.tests for f in chosen}) if not judge.sound(tests)]
    if broken:
        print(f"fails without a fault: {', '.join(broken)}")
        return 2
    found = {fault.name: judge.fault(fault) for fault in chosen}
    if asked.before:
        print(table(found, found, Verdicts(asked.before).read()))
    verdicts = {verdict.verdict for verdict in found.values()}
    return 2 if NO_BUILD in verdicts else int(SURVIVED in verdicts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
