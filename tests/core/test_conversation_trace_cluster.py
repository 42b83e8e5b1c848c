"""Reuse on the conversation trace against other simulators' published figures (issue of seed 001)."""

from pathlib import Path

import pytest
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate
from support.shared_files import shared

FOUR = ("cluster.machines=4", "tiers.gpu.capacity=1000 blocks")
CPU = (*FOUR, "tiers.cpu.capacity=4000 blocks")


def reuse(*settings: str) -> float:
    """Return the share of prompt tokens served from a cache."""
    path = Path(shared("traces/conversation_trace.jsonl"))
    scenario = load_scenario(None, settings, path)
    rows = simulate(scenario.settings, read_requests(scenario)).requests
    return float(rows["cached_prefix_length_used"].sum() / rows["input_tokens"].sum())


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        (FOUR, 0.054, 0.056),  # Dynamo .0549, AISimulate .0550
        (CPU, 0.10, 0.13),  # AISimulate .1147
        ((*CPU, "tiers.disk.capacity=16000 blocks"), 0.16, 0.20),  # AISimulate .1829
        (("tiers.gpu.capacity=16384 blocks",), 0.265, 0.280),
    ],
)
def test_reuse_is_where_other_simulators_have_it(settings, low, high):
    assert low <= reuse(*settings) <= high


def test_reading_each_others_cpu_reaches_most_of_one_pool():
    alone, together = reuse(*CPU), reuse(*CPU, "fetch.lookup=cluster")
    one_pool = reuse("tiers.gpu.capacity=16384 blocks")
    assert alone < together < one_pool
