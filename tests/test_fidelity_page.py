"""The page on fidelity has a row for every packaged set, and that row says what the set's file states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kvcache_sim.model.calibration.shipped import MIXTURES, SHIPPED, TRANSFERRED
from kvcache_sim.model.catalog import read_entry
from kvcache_sim.model.step_times import step_time_names

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fidelity.md"


def rows_by_set(text: str) -> dict[str, list[str]]:
    """Return the cells of each table row that begins with a set's name, without what is bold."""
    sets = text[: text.index("## A real run it has not seen")]
    sets = re.sub(
        r"## Steps that no CUDA graph holds.*?(?=^## )", "", sets, flags=re.M | re.S
    )  # hosts, topologies
    found = re.findall(r"^\| `([\w.-]+)`[^|]*\|(.*)\|$", sets, re.M)
    return {name: [cell.replace("**", "").strip() for cell in cells.split("|")] for name, cells in found}


def said(errors: dict[str, float] | None) -> str:
    return f"{errors['mape_percent']:.2f} / {errors['p95_percent']:.1f}" if errors else "no row"


ROWS = rows_by_set(PAGE.read_text())


def test_every_packaged_set_has_its_row():
    assert set(step_time_names()) == set(ROWS)
    assert set(ROWS) == {entry.name for entry in (*SHIPPED, *TRANSFERRED, *MIXTURES)}


@pytest.mark.parametrize("name", [entry.name for entry in SHIPPED])
def test_a_rows_figures_are_those_of_its_set(name):
    held = read_entry("step_times", "step time", name)["held_out"]
    mixed = said(held["mixed"]) if "mixed" in held else "assumed"
    assert ROWS[name][1:] == [said(held["decode"]), mixed, said(held["prefill"])]


@pytest.mark.parametrize("name", [mixture.name for mixture in MIXTURES])
def test_a_mixtures_figures_are_those_of_its_set(name):
    entry = read_entry("step_times", "step time", name)
    rows, blocks = entry["held_out"], entry["held_out_blocks"]
    count, _, decode, decode_blocks, _, mixed, mixed_blocks = ROWS[name]
    assert f", {count.split('− ')[1]} of compilation left out" in entry["source"]
    assert (decode, decode_blocks) == (said(rows["decode"]), said(blocks["decode"]))
    assert (mixed, mixed_blocks) == (said(rows["mixed"]), said(blocks.get("mixed")))


def test_a_row_that_is_dropped_or_changed_is_seen():
    name = SHIPPED[0].name
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}`"))
    assert name not in rows_by_set(PAGE.read_text().replace(line, ""))
    changed = rows_by_set(PAGE.read_text().replace(line, line.replace("1.16", "1.15")))
    assert changed[name] != ROWS[name]
