"""Run random small scenarios in this build and another: equal exit codes, digests and summaries, on every
engine.

    python benches/same_digests.py BASE [--scenarios 300] [--seed 1] [--feature NAME ...] [--spec] [--show]
                                   [--engines native,spec,spec-plain,python]

BASE is a commit, built in ``target/bench``, or a built checkout's ``python`` folder, or ``-`` for none. BASE
runs with its default engine; this build runs on each engine named. ``python`` is the second engine of builds
before 25 Nov 2026, which BASE runs (``--backend python``) if it has that option. Scenarios are drawn by
``tests/support/scenarios.py`` until so many ran; ``--feature`` gives each of them a feature of its table
(``--list`` prints them), ``--spec`` draws only scenarios that the specification may cover. A scenario that
every build refuses, or that an engine ``spec`` refuses, is drawn again. Each scenario that differs is kept in
``target/bench/different`` with the line that runs it, and the exit code is then 1. ``--show`` prints every
line. New seeds are new scenarios.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from build_of import ROOT, SCRATCH, build_of

sys.path.insert(0, str(ROOT / "tests"))
from support.scenarios import FEATURES, Scenario, drawn

#: Runs the command lines that it reads, and prints each one's exit code and summary.
_RUNNER = """
import contextlib, io, json, os, shutil, sys, tempfile
from kvcache_sim.cli.main import run
place = tempfile.mkdtemp()
for line in sys.stdin:
    folder, arguments = json.loads(line)
    os.chdir(folder)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run(["simulate", *arguments, "--quiet", "-o", place + "/run", "--force"])
    except BaseException as error:
        code = 70
        said.write(f"{type(error).__name__}: {error}")
    found = json.load(open(place + "/run/summary.json")) if code == 0 else said.getvalue()[-600:]
    print(json.dumps([code, found]), flush=True)
shutil.rmtree(place)
"""
#: Parts of a summary that describe how a run was made and the meaning of its names, not its results.
_HOW = ("wall", "engine", "plugins", "definitions")
#: Some build must accept at least one draw in this many.
_MOST_IN_VAIN = 400

Answer = tuple[int, Any]


class Build:
    """A build that runs one command line after another in a process of its own, on one of its engines."""

    def __init__(self, python: Path, options: tuple[str, ...] = ()) -> None:
        self.options = options
        environment = {**os.environ, "PYTHONPATH": str(python), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _RUNNER]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def start(self, folder: Path, arguments: list[str]) -> None:
        """Start ``kvsim simulate`` with some arguments in a folder."""
        assert self._process.stdin is not None
        print(json.dumps([str(folder), [*arguments, *self.options]]), file=self._process.stdin, flush=True)

    def answer(self) -> Answer:
        """Return (exit code, summary or output) of the run that was started."""
        assert self._process.stdout is not None
        code, found = json.loads(self._process.stdout.readline())
        return code, found


def engine_options(python: Path) -> str:
    """Return the output of ``kvsim simulate --help`` of a build, which names its options."""
    command = [sys.executable, "-m", "kvcache_sim", "simulate", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(python), "COLUMNS": "200"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def columns(here: Path, there: Path | None, engines: list[str]) -> dict[str, Build]:
    """Return the builds and engines that are compared, by name."""
    theirs = engine_options(there) if there else ""
    builds = {"base": Build(there)} if there else {}
    for engine in engines:
        if engine == "native":
            builds["here"] = Build(here)
        elif engine != "python":
            builds[f"here, {engine}"] = Build(here, ("--engine", engine))
        elif there and "--backend" in theirs:
            builds["base, python"] = Build(there, ("--backend", "python"))
        else:
            raise SystemExit("engines: python is in builds before 25 Nov 2026 alone; name one as BASE")
    return builds


def result(answer: Answer) -> object:
    """Return the parts that must be equal: the exit code, and the summary without how the run was made."""
    code, found = answer
    return (code, {k: v for k, v in found.items() if k not in _HOW}) if isinstance(found, dict) else (code,)


def differences(one: object, other: object, where: str = "") -> Iterator[str]:
    """Yield the keys at which two summaries differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{where}.{key}" if where else key)
    elif one != other:
        yield f"{where}: {one} / {other}"


class Outcome(NamedTuple):
    """The outcome of one scenario: refused, equal or different, and the answer of each build."""

    what: str
    answers: dict[str, Answer]


def compare(builds: dict[str, Build], scenario: Scenario, folder: Path) -> Outcome:
    """Run a scenario on all builds at the same time and compare."""
    scenario.write(folder)
    for build in builds.values():
        build.start(folder, scenario.arguments())
    answers = {name: build.answer() for name, build in builds.items()}
    codes = {name: code for name, (code, _) in answers.items()}
    refused_by_spec = any(code == 2 for name, code in codes.items() if "spec" in name)
    if refused_by_spec or set(codes.values()) == {2}:
        return Outcome("refused", answers)
    results = [json.dumps(result(answer), sort_keys=True) for answer in answers.values()]
    if len(set(results)) > 1:
        return Outcome("different", answers)
    return Outcome("equal" if set(codes.values()) == {0} else "equal, failed", answers)


def explained(answers: dict[str, Answer]) -> Iterator[str]:
    """Yield a line for each figure that differs from the first build's."""
    first, base = next(iter(answers.items()))
    for name, (code, found) in answers.items():
        if result((code, found)) == result(base):
            continue
        if code or base[0]:
            yield f"  {name}: exit code {code}, {first} {base[0]}: {found if code else base[1]}"
            continue
        for line in list(differences(result((code, found))[1], result(base)[1]))[:8]:  # type: ignore[index]
            yield f"  {name} / {first}: {line}"


def compared(builds: dict[str, Build], asked: argparse.Namespace, scratch: Path) -> Counter[str]:
    """Run so many scenarios on all builds, print the different ones, and count the outcomes."""
    counts: Counter[str] = Counter()
    features: Counter[str] = Counter()
    engines: Counter[str] = Counter()
    in_vain = 0
    seeds = iter(range(asked.seed * 1_000_000, (asked.seed + 1) * 1_000_000))
    while counts.total() - counts["refused"] < asked.scenarios:
        scenario = drawn(seed := next(seeds), asked.feature, asked.spec)
        if not set(asked.feature) <= set(scenario.present):
            continue
        what, answers = compare(builds, scenario, scratch / str(seed))
        counts[what] += 1
        in_vain = in_vain + 1 if what == "refused" else 0
        if in_vain > _MOST_IN_VAIN:
            print(f"no scenario ran of the last {in_vain} drawn: {next(iter(answers.values()))[1]}")
            break
        if what == "equal":
            features.update(scenario.present or ["no feature"])
            named = answers.get("here", next(iter(answers.values())))[1]["engine"].get("name", "not named")
            engines[named] += 1
        if asked.show or what == "different":
            folder = SCRATCH / "different" / str(seed)
            scenario.write(folder)
            print(f"{what} (cd {folder}; kvsim simulate {shlex.join(scenario.arguments())})", flush=True)
            print(*(explained(answers) if what == "different" else ()), sep="\n", flush=True)
    print("with", ", ".join(f"{name} {count}" for name, count in sorted(features.items())))
    print("engine.name here:", ", ".join(f"{name} {count}" for name, count in sorted(engines.items())))
    return counts


def main() -> int:
    """Compare the builds and print the counts; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", nargs="?")
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--feature", action="append", default=[], choices=list(FEATURES), metavar="NAME")
    parser.add_argument("--engines", default="native,spec", type=lambda text: text.split(","))
    parser.add_argument("--spec", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    if asked.list or asked.base is None:
        print(*FEATURES, sep="\n")
        return int(not asked.list)
    base = None if asked.base == "-" else build_of(asked.base)
    builds = columns(ROOT / "python", base, asked.engines)
    with tempfile.TemporaryDirectory() as directory:
        counts = compared(builds, asked, Path(directory))
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return int(counts["different"] > 0 or not counts["equal"])


if __name__ == "__main__":
    sys.exit(main())
