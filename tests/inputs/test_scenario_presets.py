"""Every packaged scenario runs, uses its subject, and is listed on its page."""

import sys
from pathlib import Path

import pytest
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
from scenario_table import PAGE, PRESETS, TWO_WIRES, answer, page, rows_of  # noqa: E402

FOLDER = ROOT / "scenarios"
SMALL = """
    one-gpu cpu-offload nvme remote-pool mooncake-pool cachedattention ragcache pd-disagg
    two-machines
""".split()
#: What each of them must reach, with small tiers and few requests.
REACHED = {
    "cpu-offload": "cpu",
    "nvme": "disk",
    "remote-pool": "remote",
    "mooncake-pool": "remote",
    "two-machines": "remote",
}


@pytest.mark.parametrize("name", SMALL)
def test_a_preset_runs_and_reaches_what_it_is_about(name):
    small = ["workload.requests=150", "tiers.gpu.capacity=3GiB"]
    if name in ("nvme", "cachedattention"):
        small.append("tiers.cpu.capacity=1GiB")
    scenario = load_scenario(FOLDER / f"{name}.yaml", small)
    result = simulate(scenario.settings, read_requests(scenario), options=RunOptions(check="full"))
    assert (result.requests["status"] == 0).sum() > 100
    if name in REACHED:
        assert result.requests[f"cached_{REACHED[name]}_tokens"].sum() > 0


def test_pools_smooth_the_time_between_tokens_and_cost_time_to_the_first():
    found = []
    for options in ([], ["pools.prefill=0", "pools.decode=0"]):
        scenario = load_scenario(FOLDER / "pd-disagg.yaml", ["workload.requests=500", *options])
        found.append(summarize(simulate(scenario.settings, read_requests(scenario)), 16))
    pools, one = found
    assert pools["handover"]["requests"] == 500
    assert pools["latency"]["itl"]["std"] < one["latency"]["itl"]["std"] / 2
    assert pools["latency"]["itl"]["max"] < one["latency"]["itl"]["max"]
    assert pools["latency"]["ttft"]["avg"] > one["latency"]["ttft"]["avg"]


def test_two_machines_that_read_from_each_other_contend_on_one_wire_and_not_on_two():
    """Seed 001: make them select the same channel on fetching from remote, or two different ones."""
    found = []
    for options in ([], TWO_WIRES):
        scenario = load_scenario(FOLDER / "two-machines.yaml", ["workload.requests=600", *options])
        run = simulate(scenario.settings, read_requests(scenario))
        wires = {c.name: c for c in run.channels if c.name in ("wire", "back")}
        assert all(wire.jobs > 20 for wire in wires.values())
        waits = sum(wire.queued_ns for wire in wires.values()) / sum(wire.jobs for wire in wires.values())
        found.append((len(wires), waits, int(run.requests["stall_remote_cpu_ns"].sum())))
    (one, shared_wait, shared_stall), (several, wait, stall) = found
    assert (one, several) == (1, 2)
    assert shared_wait > 2 * wait
    assert shared_stall > stall


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_answers_its_question_as_the_page_says(preset):
    """At its own size and seed, and at most of the other seeds; ``python docs/site/scenario_table.py`` writes it."""
    found = answer(preset)
    assert found.holds
    assert sum(found.others) * 2 > len(found.others) or not found.others
    assert rows_of(PAGE.read_text())[preset.name] == found.row


def test_the_page_has_a_row_for_every_scenario_and_is_as_written():
    text = PAGE.read_text()
    rows = rows_of(text)
    assert page(rows.values()) == text
    assert {*rows, "vllm-rtx4090"} == {path.stem for path in FOLDER.glob("*.yaml")}
    assert list(rows) == [preset.name for preset in PRESETS]
    for path in FOLDER.glob("*.yaml"):
        assert "?" in path.read_text().split("\nname:")[0], path.stem
