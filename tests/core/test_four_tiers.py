"""A tier is a row of the table: a machine of gpu, cpu, disk and object, end to end; and no name stands
elsewhere."""

import ast
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from kvcache_sim.base.tier_table import ROWS
from kvcache_sim.base.tiers import TIERS
from support.tiered_scenario import BASE

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "kvcache_sim"
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


CHANGES = {
    "prefetch": ("prefetch.policy=queued",),
    "writing through": ("write.policy=through",),
    "an edge of its own": ("write.policy={disk: through}",),
    "exclusive": ("fetch.exclusive=[object->disk]",),
    "cheaper": ("fetch.policy=cheaper",),
    "remote": ("fetch.lookup=cluster",),
    "remote, staged": ("fetch.lookup=cluster", "fetch.remote_disk=staged"),
    "a channel of its own": (
        "channels.s3={bandwidth: 2GB/s, latency: 5ms, edges: [disk->object, object->disk]}",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_movement_policy_reaches_the_fourth_tier(change: str, run: Path, tmp_path: Path):
    settings = [word for setting in CHANGES[change] for word in ("--set", setting)]
    reported, plain = summary(simulated(tmp_path, "--check", "full", *settings)), summary(run)
    assert reported["requests"]["finished"] == 150
    assert reported["digest"]["events"] != plain["digest"]["events"]
    at, was = reported["tiers"]["object"], plain["tiers"]["object"]
    if change == "prefetch":
        assert reported["cache"]["hit_tokens"]["object"] < plain["cache"]["hit_tokens"]["object"], (
            "it is up already"
        )
    if change in ("writing through", "an edge of its own"):
        assert at["written_bytes"] > 0 < at["duplicate_blocks"]
        assert at["duplicate_blocks"] > was["duplicate_blocks"]
    if change == "exclusive":
        assert at["duplicate_blocks"] < was["duplicate_blocks"]
    if change.startswith("remote"):
        assert reported["cache"]["hit_tokens"]["remote"] > 0
    if change == "a channel of its own":
        assert reported["channels"]["s3-0"]["bytes"] > 0
        assert "object-to-disk-0" not in reported["channels"]


def test_it_is_explained_and_drawn(run: Path, tmp_path: Path):
    said = kvsim("explain", str(run))
    assert "object served" in said.stdout, said.stderr
    assert "Loading from object" in said.stdout
    page = tmp_path / "page.html"
    assert kvsim("report", str(run), "-o", str(page)).returncode == 0
    assert "fetch object" in page.read_text()
    assert kvsim("timeline", str(run), "-o", str(tmp_path / "t.json.gz")).returncode == 0
    assert b"disk->object" in gzip.decompress((tmp_path / "t.json.gz").read_bytes())


def test_settings_of_the_fourth_tier_are_checked_as_those_of_others(tmp_path: Path):
    keys = kvsim("help", "scenario").stdout
    assert "tiers.object.capacity" in keys
    assert "cost.object_gib_month" in keys
    scenario = tmp_path / "s.yaml"
    scenario.write_text(BASE)
    for setting, why in (
        (
            "tiers={gpu: {capacity: 400 blocks}, cpu: {capacity: 9 blocks}, object: {capacity: 9 blocks}}",
            "blocks reach the object through the disk: add tiers.disk",
        ),
        ("fetch.exclusive=[object->disk]", "no machine has this edge"),
        ("channels.s3={bandwidth: 1GB/s, edges: [disk->object]}", "no machine has this edge"),
    ):
        done = kvsim("simulate", "-c", str(scenario), "--set", setting, "-o", str(tmp_path / "r"))
        assert done.returncode == 2, setting
        assert why in done.stderr


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

#: Text in which a tier's name has another meaning, or is an example: by file, with the reason.
EXCEPTIONS = {
    "base/tier_table.py": "the table",
    "model/": "a GPU as a product, not as a tier",
    "base/errors.py": "a full disk of the machine that simulates",
    "cli/main.py": "an example",
    "cli/channels.py": "an example",
    "cli/models.py": "a GPU as a product, not as a tier",
    "report/model_sheet.py": "a GPU as a product, not as a tier",
    "report/step_time_sheet.py": "a GPU as a product, not as a tier",
    "cli/help.py": "a help page with examples",
    "cli/sweep.py": "CPU time of the simulation",
    "metrics/names.py": "CPU time of the simulation",
    "metrics/figures.py": "CPU time of the simulation",
    "metrics/summary_text.py": "CPU time of the simulation",
    "scenario/execute.py": "CPU time of the simulation; where the capacity of a GPU comes from",
    "policies/plugins/stand_ins.py": "a module of vLLM",
    "scenario/key_suggestions.py": "an option of vLLM; a GPU as a product, not as a tier",
    "replay/engines.py": "an option of vLLM",
    "policies/engine_modes.py": "tiers of LMCache",
    "policies/table.py": "tiers of LMCache",
    "replay/engine_requests.py": "an option of cachesim for LMCache",
    "replay/engine_tiers.py": "tiers of LMCache",
    "replay/request.py": "an option of cachesim for LMCache",
    "report/cachesim.py": "options of cachesim for LMCache",
    "api/replays.py": "tiers of LMCache",
    "cli/cachesim.py": "tiers of LMCache",
    "metrics/glossary.py": "examples of tiers",
    "scenario/launch/": "options of vLLM and SGLang, and the keys that they become",
    "extras/live/metrics.py": "a label of vLLM's metrics",
    "extras/live/events/layout.py": "tiers as vLLM's KV events name them",
    "serving/router/prefix_index.py": "tiers as llm-d weighs them",
    "simulation/spec_keys.py": "a key named when there was one such tier",
}
#: Words of scenarios that were named when there was one such tier, or for a GPU as a product.
SCENARIO_WORDS = {"remote_disk", "gpu-direct", "via-cpu", "copy_gpu_share"}
NAME = re.compile(rf"(?<![A-Za-z])({'|'.join(row.name for row in ROWS)})(?![A-Za-z])")


def names_of_tiers(source: str) -> list[str]:
    """Return the texts of a module, docstrings apart, in which a tier's name stands as a word."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    return [text for text in texts if text not in SCENARIO_WORDS and NAME.search(text)]


def test_names_of_tiers_stand_in_the_table_alone():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        index = path.relative_to(PACKAGE).as_posix()
        if not index.startswith(tuple(EXCEPTIONS)):
            found[index] = names_of_tiers(path.read_text())
    assert {index: texts for index, texts in found.items() if texts} == {}


def test_every_exception_is_still_needed():
    for index in EXCEPTIONS:
        paths = (PACKAGE / index).rglob("*.py") if index.endswith("/") else [PACKAGE / index]
        assert any(names_of_tiers(path.read_text()) for path in paths), index


def test_the_search_for_names_finds_them():
    for text in ("gpu", "cpu->gpu", "cached_disk_tokens", "tiers.cpu.capacity", "the gpu is small"):
        assert names_of_tiers(f"x = {text!r}") == [text]
    assert names_of_tiers('"""gpu"""\nx = "gpus, discs"') == []
    assert TIERS == ("gpu", "cpu", "disk")
