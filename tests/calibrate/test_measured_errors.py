"""Tables of measured errors: each is on one page, packaged sets have their rows, and the page on trust states them."""

import re

import pytest
from kvcache_sim.extras.calibrate.shipped import MIXTURES, SHIPPED, SWEPT, TRANSFERRED
from kvcache_sim.model.step_times import step_time_names
from kvcache_sim.policies.engine_modes import ENGINE_MODES
from support.docs_data import figures_of, on_pages, read_pages, read_table, rows_text, section, table_names
from support.product.models import read_entry
from support.shared_files import ROOT

TRUST = (ROOT / "docs" / "understand" / "trust.md").read_text()


def rows_by_set(*tables: str) -> dict[str, list[str]]:
    return {row[0].strip("`"): row[1:] for table in tables for row in read_table(table).rows}


def said(errors: dict[str, float] | None) -> str:
    return f"{errors['mape_percent']:.2f} / {errors['p95_percent']:.1f}" if errors else "no row"


ROWS = rows_by_set("packaged-sets", "mixture-sets")


def test_every_packaged_set_has_its_row():
    assert set(step_time_names()) == set(ROWS)
    assert set(ROWS) == {e.name for e in (*SHIPPED, *SWEPT, *TRANSFERRED, *MIXTURES)}


@pytest.mark.parametrize("name", [entry.name for entry in (*SHIPPED, *SWEPT)])
def test_a_rows_figures_are_those_of_its_set(name):
    held = read_entry("step_times", "step time", name)["held_out"]
    mixed = said(held["mixed"]) if "mixed" in held else "assumed"
    assert ROWS[name][1:] == [said(held["decode"]), mixed, said(held.get("prefill"))]


@pytest.mark.parametrize("name", [mixture.name for mixture in MIXTURES])
def test_a_mixtures_figures_are_those_of_its_set(name):
    entry = read_entry("step_times", "step time", name)
    rows, blocks = entry["held_out"], entry["held_out_blocks"]
    count, _, decode, decode_blocks, _, mixed, mixed_blocks = ROWS[name]
    assert f", {count.split('− ')[1]} of compilation left out" in entry["source"]
    assert (decode, decode_blocks) == (said(rows["decode"]), said(blocks["decode"]))
    assert (mixed, mixed_blocks) == (said(rows["mixed"]), said(blocks.get("mixed")))


def test_every_table_is_on_one_page_and_says_where_it_is_from():
    placed = [name for page in read_pages() for name in page.tables] + [name for _, name in on_pages()]
    assert sorted(placed) == sorted(table_names() - {"figure-families", "trust"})
    for name in table_names():
        table = read_table(name)
        assert table.source, name
        assert not table.test or (ROOT / "tests" / table.test).exists(), name
        assert len(set(map(tuple, table.rows))) == len(table.rows), name


def test_the_page_on_trust_has_its_table_and_is_short():
    assert rows_text(read_table("trust")) in TRUST
    assert len(TRUST.split()) <= 1200


def numbers(text: str) -> set[float]:
    return set(figures_of(text.replace("+", " ").replace(",", "")))


@pytest.mark.parametrize("row", read_table("trust").rows, ids=lambda row: f"{row[0]}, {row[1]}"[:60])
def test_every_error_on_the_page_on_trust_stands_in_a_table_of_the_appendix(row):
    measured, evidence = row[2:6], row[6]
    sources = re.findall(r"\]\(\.\./reference/measured-[a-z]+\.md#([\w-]+)\)", evidence)
    stated: set[float] = set().union(*(numbers(section(name)) for name in sources))
    assert {abs(each) for cell in measured for each in numbers(cell)} <= {abs(each) for each in stated}


#: How a row of the page on trust begins, and the table and column of the streams that it states.
STREAMS = {
    "own iterations": ("h100-streams", "fitted, %"),
    "composed set": ("h100-clocks", "`h100-llama-3-8b-tp1`, %"),
    "roofline": ("h100-clocks", "roofline, %"),
    "kernel tables": ("h100-clocks", "aiconfigurator, %"),
    "measured host": ("h100-streams", "with launch, %"),
}


def test_the_rows_of_streams_state_low_load_and_near_capacity():
    errors = {}
    for name in ("h100-streams", "h100-clocks"):
        table = read_table(name)
        errors |= {
            (name, row[0].strip("`")): dict(zip(table.columns, row, strict=True)) for row in table.rows
        }
    rows = [row for row in read_table("trust").rows if "#h100-streams" in row[6] or "#h100-clocks" in row[6]]
    assert len(rows) == 9
    for row in rows:
        [(name, column)] = [given for kind, given in STREAMS.items() if row[0].startswith(kind)]
        streams = ("moe-talks", "moe-peak") if "MoE" in row[0] else ("talks", "peak")
        stated = [errors[name, stream][column].split(" / ") for stream in streams]
        assert f"#{name})" in row[6]
        assert row[1] == "low; near capacity"
        assert row[2:4] == [f"{stated[0][at]}; {stated[1][at]}" for at in (0, 1)]


def test_hit_rates_are_those_of_as_many_runs_of_engines_as_stated():
    recorded = sum(mode.rows for mode in ENGINE_MODES)
    assert f"{recorded} recorded runs" in TRUST
