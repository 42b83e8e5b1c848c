"""Copies between an H100 and its host as they were measured: the page's figures, the hosts, the presets."""

import csv

import pytest
from kvcache_sim.model.hosts import load_host
from support.docs_data import figures
from support.product.models import load_channel
from support.shared_files import ROOT

ROWS = {"one-by-one": "one call a copy", "batched": "one call for all", "kernel": "a kernel of 16 blocks"}
DIRECTIONS = ("host->gpu", "gpu->host")
PRESETS = {"one-by-one": "one-by-one", "batched": "batched", "kernel": "by-kernel"}


def measured() -> dict[tuple[str, str, int], dict[str, float]]:
    """The rows by (how, direction, KiB a piece)."""
    found = {}
    with (ROOT / "benches/measured/h100-copies.csv").open() as file:
        for row in csv.DictReader(file):
            how, direction = row.pop("how"), row.pop("direction")
            found[how, direction, int(row["piece_bytes"]) >> 10] = {k: float(v) for k, v in row.items()}
    return found


def error_percent(row: dict[str, float], preset: str) -> float:
    pieces = int(row["pieces"])
    ruled_us = load_channel(preset).transfer_ns(int(row["piece_bytes"]) * pieces, pieces) / 1e3
    return 100 * (ruled_us / row["total_us"] - 1)


def submit_us(row: dict[str, float]) -> float:
    return row["submit_us"] / row["pieces"]


def gb_per_s(row: dict[str, float]) -> float:
    return row["piece_bytes"] * row["pieces"] / row["total_us"] / 1e3


@pytest.mark.parametrize("how", ROWS)
def test_the_page_has_what_was_measured(how):
    rows = measured()
    pairs = {kib: [rows[how, direction, kib] for direction in DIRECTIONS] for kib in (8, 64, 2048)}
    found = [
        [round(submit_us(row), 2) for row in pairs[64]],
        *([round(gb_per_s(row), 1) for row in pairs[kib]] for kib in (8, 64, 2048)),
        [round(row["memory_slower_percent"], 1) for row in pairs[64]],
        [round(row["arithmetic_slower_percent"], 1) for row in pairs[64]],
    ]
    stated = figures("copies-measured", ROWS[how])
    assert stated == [pytest.approx(pair, abs=0.051) for pair in found]


@pytest.mark.parametrize(
    ("host", "how"),
    [
        ("h100-copies-one-by-one", "one-by-one"),
        ("h100-copies-batched", "batched"),
        ("h100-copies-by-kernel", "kernel"),
    ],
)
def test_the_hosts_are_the_mean_of_both_directions(host, how):
    rows, given = measured(), load_host(host)
    pair = [rows[how, direction, 64] for direction in DIRECTIONS]
    assert given.copy_submit_ns == round(500 * sum(map(submit_us, pair)))
    slower = [row["memory_slower_percent"] / 100 for row in pair]
    assert given.copy_gpu_share == pytest.approx(sum(s / (1 + s) for s in slower) / 2, abs=0.005)


def test_every_row_is_on_the_page_with_the_error_of_the_old_rule_and_of_its_own_preset():
    rows = measured()
    for kib in sorted({kib for _, _, kib in rows}):
        first = f"{kib} KiB" if kib < 1024 else f"{kib >> 10} MiB"
        stated = figures("copies-presets", first)
        for cell, (how, name) in zip(stated, PRESETS.items(), strict=True):
            found = []
            for direction, ending in zip(DIRECTIONS, ("h2d", "d2h"), strict=True):
                row = rows[how, direction, kib]
                found += [error_percent(row, each) for each in ("pcie5-x16", f"pcie5-h100-{name}-{ending}")]
            assert cell == [pytest.approx(error, abs=0.51) for error in found], (how, kib)
