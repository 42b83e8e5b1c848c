"""The table of wrong inputs: commands and files, their exit codes and first lines.

``typed.jsonl`` was written manually, ``mutated.jsonl`` by ``mutations``: sound scenarios, traces and settings
with a few
characters changed. ``python tests/support/wrong_inputs.py`` writes code and line of every row anew, to be read before
it is
committed. A line that ends with ``…`` continues with names that others add to.
"""

import contextlib
import io
import json
import os
import random
import re
import shlex
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from kvcache_sim.cli.main import run

from support.small_run import small_run

TABLES = Path(__file__).resolve().parents[1] / "wrong_input_tables"
ROW = '{"timestamp": %d, "input_length": 1024, "output_length": 5, "hash_ids": [%d, %d]}\n'
TRACE = "".join(ROW % (k * 100, k % 3, k % 3 + 10) for k in range(6))
SCENARIO = """\
name: base
seed: 3
workload: {kind: conversational, requests: 12, arrivals: {process: poisson, rate_per_s: 2.5}, output_tokens: 5}
cache: {block_size: 64, policy: lru, touch: release, lookup_time: 3us}
tiers: {gpu: {capacity: 300 blocks}, cpu: {capacity: 2GiB}}
cluster: {machines: 2}
router: {policy: longest-prefix, load_threshold: 2.0}
replica: {max_num_seqs: 16, step_overhead: 20us}
channels: {pcie: {bandwidth: 25GB/s, edges: [gpu->cpu, cpu->gpu]}}
fetch: {policy: always, layer_pipelining: true}
write: {policy: through}
"""
_CUT = (
    "; did you mean",
    "; known",
    "; verbs:",
    "known keys",
    "; expected one of",
    "; name it with",
    "; topics:",
)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A command with the text of one file, and its exit code and first line."""

    argv: str
    file: str = ""
    text: str = ""
    code: int = -1
    line: str = ""
    #: The name that it suggests, or none.
    meant: str = ""


def table(name: str) -> list[Wrong]:
    """Return the rows of a table."""
    return [Wrong(**json.loads(row)) for row in (TABLES / f"{name}.jsonl").read_text().splitlines()]


@cache
def _run() -> Path:
    """Return a finished run of 50 requests, made once, whose trace is gone."""
    run = small_run(Path(tempfile.mkdtemp()) / "run", 50)
    (run.parent / "small.jsonl").unlink()
    return run


def prepare(index: Path) -> None:
    """Write the files that the rows name into an empty directory, and a finished run."""
    (index / "run").symlink_to(_run())
    (index / "t.jsonl").write_text(TRACE)
    (index / "sub").mkdir()
    (index / "taken").mkdir()
    (index / "taken" / "file").write_text("")


def ended(row: Wrong, index: Path) -> tuple[int, str]:
    """Type a row in a directory that ``prepare`` filled; return its exit code and what it wrote on stderr."""
    if row.file:
        (index / row.file).write_bytes(row.text.encode("utf-8", "surrogateescape"))
    said, stdin = io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        with (
            contextlib.chdir(index),
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            code = run(shlex.split(row.argv))
    finally:
        sys.stdin = stdin
    return code, said.getvalue().replace(f"{index}{os.sep}", "")


def reported(said: str) -> str:
    """Return the line of the table for what was written: the first that is no warning, without others'
    names."""
    lines = [line for line in said.splitlines() if not line.startswith("warning: ")]
    line = lines[0] if lines else ""
    cuts = [line.index(word) for word in _CUT if word in line]
    if " | " in line and "; expected" in line:
        cuts.append(line.index("; expected"))
    return line[: min(cuts)] + "…" if cuts else line


def suggested(said: str) -> str:
    """Return the first name that a refusal suggests, or nothing."""
    found = re.search(r"did you mean '?([^\s'?,]+)", said)
    return found[1] if found else ""


def mutated(seed: int) -> Wrong:
    """Return a sound input with one to three characters changed, none of which makes a number longer."""
    rng = random.Random(seed)
    kind = rng.choice(["scenario", "trace", "setting"])
    sound = {"scenario": SCENARIO, "trace": TRACE, "setting": rng.choice(SCENARIO.splitlines()[3:])}[kind]
    text = list(sound)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        choice = rng.randrange(3)
        if choice == 0:
            del text[at]
        elif choice == 1:
            text[at] = rng.choice("[]{}:,-#&*!|>'\"%@`? \tx=/")
        else:
            text.insert(at, rng.choice("[]{}:,-#&*!|>'\"%@`? \tx=/é"))
    changed = "".join(text)
    if kind == "scenario":
        return Wrong("simulate -c s.yaml -o out -q", "s.yaml", changed)
    if kind == "trace":
        return Wrong("simulate x -o out -q", "x", changed)
    key, _, value = changed.partition(":")
    return Wrong(f"simulate t.jsonl -o out -q --set {shlex.quote(f'{key}={value.strip()}')}")


def mutations(count: int) -> list[Wrong]:
    """Return the first ``count`` mutations that are wrong, by seed."""
    found: list[Wrong] = []
    seed = 0
    while len(found) < count:
        row = recorded(mutated(seed))
        seed += 1
        if row.code != 0 and row not in found:
            found.append(row)
    return found


def recorded(row: Wrong) -> Wrong:
    """Return a row with the code and the line with which it ends."""
    with tempfile.TemporaryDirectory() as directory:
        index = Path(directory).resolve()
        prepare(index)
        code, said = ended(row, index)
    return replace(row, code=code, line=reported(said), meant=suggested(said))


def write(name: str, rows: list[Wrong]) -> None:
    """Write a table, the fields that a row leaves open left out."""
    kept = [
        {key: value for key, value in asdict(row).items() if value != "" or key == "argv"} for row in rows
    ]
    lines = [json.dumps(row, ensure_ascii="\udcff" in row.get("text", "")) + "\n" for row in kept]
    (TABLES / f"{name}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    write("typed", [recorded(row) for row in table("typed")])
    write("mutated", mutations(100))
    sys.exit(0)
