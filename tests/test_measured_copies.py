"""Copies between an H100 and its host as they were measured: the page's figures, the hosts, and where the channel's rule fails."""

from __future__ import annotations

import csv

import pytest
from fidelity_page import figures
from kvcache_sim.model.channels import load_channel
from kvcache_sim.model.hosts import load_host
from shared_files import ROOT

HEADING = "Copies that cost steps"
ROWS = {"one-by-one": "one call a copy", "batched": "one call for all", "kernel": "a kernel of 16 blocks"}
DIRECTIONS = ("host->gpu", "gpu->host")


def measured() -> dict[tuple[str, str, int], dict[str, float]]:
    """The rows by (how, direction, KiB a piece)."""
    found = {}
    with (ROOT / "benches/measured/h100-copies.csv").open() as file:
        for row in csv.DictReader(file):
            how, direction = row.pop("how"), row.pop("direction")
            found[how, direction, int(row["piece_bytes"]) >> 10] = {k: float(v) for k, v in row.items()}
    return found


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
    stated = figures("fidelity.md", HEADING, ROWS[how])
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


def test_a_copy_alone_takes_its_submission_and_then_its_bytes():
    """The channel's rule takes the greater of the two, which the page states as its error."""
    link, rows = load_channel("pcie5-x16"), measured()
    for (how, _, kib), row in rows.items():
        size, pieces = int(row["piece_bytes"] * row["pieces"]), int(row["pieces"])
        ruled = link.transfer_ns(size, pieces) / 1e3 / row["total_us"] - 1
        if kib >= 2048 and how != "kernel":
            assert abs(ruled) < 0.055
        if how != "kernel":
            assert (row["submit_us"] + size / 54.9e3) / row["total_us"] == pytest.approx(1, abs=0.15)
    for how, direction, kib, error in (
        ("batched", "host->gpu", 64, -38),
        ("one-by-one", "host->gpu", 64, -70),
        ("batched", "host->gpu", 8, -79),
        ("batched", "gpu->host", 8, -32),
    ):
        row = rows[how, direction, kib]
        size, pieces = int(row["piece_bytes"] * row["pieces"]), int(row["pieces"])
        assert round(100 * (link.transfer_ns(size, pieces) / 1e3 / row["total_us"] - 1)) == error
