"""Simulate whole runs again and compare their errors by kind of source and load with docs/data/fidelity.toml.

    python benches/fidelity.py [--write] [GROUP …]

Without groups: four that take some minutes together. Exits with 1 where a row is worse than stated.
``--write`` only makes the file of ``python/kvcache_sim/model/data/run_errors.toml``, without simulating.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from kvcache_sim.model.run_errors import MeasuredRun, read_runs

ROOT = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location("measured_whole_runs", ROOT / "benches/whole_runs.py")
assert _SPEC is not None
assert _SPEC.loader is not None
#: By its path: docs/site has a module of the same name.
whole_runs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(whole_runs)
TABLE = ROOT / "docs/data/fidelity.toml"
#: Groups simulated where none is named.
QUICK = ("streams", "stages", "sharegpt", "iterations")
_FIGURES = ("ttft_mean", "tpot_mean", "e2e_mean")
#: Percentage points by which a simulation may differ where nothing has changed: rounding of the rows.
_ROUNDING = 0.06


def table_rows(
    runs: Iterable[MeasuredRun], groups: Iterable[str] = tuple(whole_runs.GROUPS)
) -> list[list[str]]:
    """Return the cells of each group, source, family and load: runs, and mean absolute errors in percent."""
    found: dict[tuple[str, ...], list[MeasuredRun]] = {}
    for run in runs:
        if run.group in groups:
            key = (run.group, run.kind.source, run.kind.family, run.load)
            found.setdefault(key, []).append(run)
    return [
        [*key, str(len(own)), *(_error(own, figure) for figure in _FIGURES)] for key, own in found.items()
    ]


def _error(runs: list[MeasuredRun], figure: str) -> str:
    pairs = [run.values[figure] for run in runs if figure in run.values]
    if not pairs:
        return "not measured"
    return f"{sum(abs(ours / real - 1) for real, ours in pairs) / len(pairs) * 100:.1f}"


def file_text(rows: list[list[str]]) -> str:
    """Return the table as a file of docs/data."""
    lines = [
        'title = "Errors of whole runs by kind of source and load"',
        'source = "`kvcache_sim/model/data/run_errors.toml` ([every run](whole-runs.md)); `make fidelity`"',
        'test = "calibrate/test_fidelity.py"',
        'about = "Mean absolute errors of mean TTFT, TPOT and E2E over the runs of a group."',
        'columns = ["group", "step times", "model", "load", "runs", "TTFT, %", "TPOT, %", "E2E, %"]',
        "rows = [",
        *("  [" + ", ".join(f'"{cell}"' for cell in row) + "]," for row in rows),
        "]",
    ]
    return "\n".join(lines) + "\n"


def worse(found: list[list[str]], stated: list[list[str]]) -> list[str]:
    """Return a line for each stated error that was exceeded, and for each row that is missing."""
    known = {tuple(row[:4]): row for row in found}
    lines = []
    for row in stated:
        own = known.get(tuple(row[:4]))
        if own is None or own[4] != row[4]:
            lines.append(f"{', '.join(row[:4])}: {row[4]} runs stated, {own[4] if own else 0} found")
            continue
        for name, ours, limit in zip(_FIGURES, own[5:], row[5:], strict=True):
            if ours != limit and "not measured" in (ours, limit):
                lines.append(f"{', '.join(row[:4])}: {name} {ours}, stated {limit}")
            elif ours != limit and float(ours) > float(limit) + _ROUNDING:
                lines.append(f"{', '.join(row[:4])}: {name} {ours} % off, stated {limit} %")
    return lines


def simulated(groups: Iterable[str]) -> list[MeasuredRun]:
    """Simulate groups of whole runs again."""
    text = ""
    for name, part in whole_runs.parts(whole_runs.DATA.read_text()):
        if name in groups:
            with tempfile.TemporaryDirectory() as folder:
                part = whole_runs.GROUPS[name](Path(folder)).text(part.partition("figures = ")[0])
        text += part + "\n" if name in groups or not name else ""
    return list(read_runs(tomllib.loads(text)))


def main(given: list[str]) -> int:
    """Write the table, or simulate its groups and print each error that is worse than stated."""
    if "--write" in given:
        TABLE.write_text(file_text(table_rows(read_runs(tomllib.loads(whole_runs.DATA.read_text())))))
        return 0
    groups = tuple(given) or QUICK
    stated = [row for row in tomllib.loads(TABLE.read_text())["rows"] if row[0] in groups]
    lines = worse(table_rows(simulated(groups), groups), stated)
    print("\n".join(lines) or f"{len(stated)} rows as stated or better")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
