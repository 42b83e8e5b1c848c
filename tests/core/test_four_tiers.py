"""A tier is a row of the table: a machine of gpu, cpu, disk and object, end to end."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.tiered_scenario import BASE

WITH_OBJECT = BASE.replace(
    "disk: {capacity: 9000 blocks}}", "disk: {capacity: 900 blocks}, object: {capacity: 9000 blocks}}"
)
BLOCK_BYTES = 64 * 131_072


def kvsim(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of a kvsim whose table has a fourth row."""
    command = [sys.executable, str(Path(__file__).with_name("four_tiers.py")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def simulated(directory: Path, *arguments: str, name: str = "run") -> Path:
    scenario = directory / "s.yaml"
    scenario.write_text(WITH_OBJECT)
    out = directory / name
    done = kvsim("simulate", "-c", str(scenario), "-o", str(out), "--quiet", *arguments)
    assert done.returncode == 0, done.stderr
    return out


def summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def columns(run: Path, table: str) -> dict[str, np.ndarray]:
    return {
        name: np.array(values) for name, values in pq.read_table(run / f"{table}.parquet").to_pydict().items()
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four tiers; ``--check full`` holds I2, I3, I4 and I7 of every store after every step."""
    arguments = ("--check", "full", "--record", "all", "--causes")
    return simulated(tmp_path_factory.mktemp("four"), *arguments)


def test_a_fourth_tier_serves_and_has_its_part_everywhere(run: Path):
    reported, rows = summary(run), columns(run, "requests")
    assert reported["cache"]["hit_tokens"]["object"] == rows["cached_object_tokens"].sum() > 0
    assert reported["cache"]["evictions"]["disk"] > 0
    assert reported["tiers"]["object"]["present"] == 2
    assert reported["tiers"]["object"]["written_bytes"] > 0 < reported["tiers"]["object"]["read_bytes"]
    assert reported["tiers"]["object"]["no_effect"] is None
    assert rows["fetch_object_ns"].sum() > 0 < rows["stall_object_disk_ns"].sum()
    assert reported["latency"]["fetch_parts"]["stall_object_disk"]["avg"] > 0
    assert {"object.free", "object.cached"} <= set(columns(run, "series")["name"])


def test_the_parts_of_ttft_and_the_tiers_hits_sum_exactly(run: Path):
    rows = {
        name: values[columns(run, "requests")["status"] == 0]
        for name, values in columns(run, "requests").items()
    }
    hops = [name for name in rows if name.startswith("stall_")]
    assert len(hops) == 4
    assert np.array_equal(rows["fetch_room_ns"] + sum(rows[name] for name in hops), rows["fetch_ns"])
    positions = ("cpu", "disk", "object", "remote")
    assert np.array_equal(
        rows["fetch_room_ns"] + sum(rows[f"fetch_{p}_ns"] for p in positions), rows["fetch_ns"]
    )
    hits = sum(rows[f"cached_{index}_tokens"] for index in ("gpu", *positions))
    assert np.array_equal(hits, rows["cached_prefix_length_used"])


def test_bytes_on_each_edge_are_its_blocks(run: Path):
    """I9, over the channels of the fourth tier and all others."""
    events, reported = columns(run, "events"), summary(run)
    sent = events["kind"] == "transfer"
    for edge in ("disk->object", "object->disk", "disk->cpu", "cpu->gpu"):
        blocks = int(events["blocks"][sent & (events["detail"] == edge)].sum())
        carried = sum(
            reported["channels"][f"{edge.replace('->', '-to-')}-{machine}"]["bytes"] for machine in (0, 1)
        )
        assert carried == blocks * BLOCK_BYTES > 0, edge


def test_a_miss_is_put_down_to_the_tier_that_was_too_small(tmp_path: Path):
    small = ("--causes", "--set", "tiers.object.capacity=400 blocks", "--set", "tiers.object.policy=sieve")
    reported = summary(simulated(tmp_path, *small))
    assert reported["misses"]["evicted"] > 0 < reported["cache"]["evictions"]["object"]
    assert "sieve on object" in reported["misses"]["evicted_by"]


def test_the_specification_gives_the_same_run(run: Path, tmp_path: Path):
    """Over the core's store and over its own."""
    for engine in ("spec", "spec-plain"):
        other = simulated(tmp_path, "--engine", engine, name=engine)
        assert summary(other)["digest"] == summary(run)["digest"]
        native = columns(run, "requests")
        for name, values in columns(other, "requests").items():
            assert np.array_equal(values, native[name]), name


#: Settings, and the figure that they make greater or smaller.
CHANGES = [
    ("prefetch.policy=queued", ("cache", "hit_tokens", "object"), "smaller"),
    ("write.policy=through", ("tiers", "object", "duplicate_blocks"), "greater"),
    ("write.policy={disk: through}", ("tiers", "object", "duplicate_blocks"), "greater"),
    ("fetch.exclusive=[object->disk]", ("tiers", "object", "duplicate_blocks"), "smaller"),
    ("fetch.lookup=cluster", ("cache", "hit_tokens", "remote"), "greater"),
    ("fetch.lookup=cluster fetch.remote_disk=staged", ("cache", "hit_tokens", "remote"), "greater"),
]


@pytest.mark.parametrize(("settings", "figure", "becomes"), CHANGES)
def test_every_movement_policy_reaches_the_fourth_tier(settings, figure, becomes, run: Path, tmp_path: Path):
    given = [word for setting in re.split(" (?=fetch)", settings) for word in ("--set", setting)]
    found, plain = summary(simulated(tmp_path, "--check", "full", *given)), summary(run)
    assert found["requests"]["finished"] == 150
    for name in figure:
        found, plain = found[name], plain.get(name, 0)
    assert (found > plain) == (becomes == "greater")
    assert found != plain


def test_a_three_tier_run_is_the_same_whether_or_not_the_table_has_a_fourth_row(tmp_path: Path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text(BASE)
    ours = [sys.executable, "-m", "kvcache_sim", "simulate", "-c", str(scenario), "--quiet", "-o"]
    subprocess.run([*ours, str(tmp_path / "three")], check=True, timeout=300)
    assert kvsim("simulate", "-c", str(scenario), "--quiet", "-o", str(tmp_path / "four")).returncode == 0
    three, four = (columns(tmp_path / name, "requests") for name in ("three", "four"))
    assert not any("object" in name for name in three)
    assert all(np.array_equal(values, four[name]) for name, values in three.items())
    assert not any(four[name].any() for name in set(four) - set(three))


# -- names
