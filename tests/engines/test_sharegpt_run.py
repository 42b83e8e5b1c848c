"""300 real requests on an RTX 4090, predicted from kernel times alone by ``scenarios/vllm-rtx4090.yaml``.

Real vLLM 0.19 measured: mean TTFT 65.5 s, TPOT 32.4 ms, E2E 86.6 s, makespan 183.6 s.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate
from support.shared_files import shared
from support.sharegpt_rows import SCENARIO, WORKLOAD

BLOCKS = 2588
NO_PREFIX_CACHE = ("cache.semantics=tree", "cache.enabled=false")


def columns(path: Path, *settings: str):
    scenario = load_scenario(SCENARIO, [f"trace.path={path}", *settings])
    return simulate(scenario.settings, read_requests(scenario), options=RunOptions()).requests


@lru_cache
def means(*settings: str) -> dict[str, float]:
    requests = columns(shared(WORKLOAD), *settings)
    names = ("arrival_ns", "first_token_ns", "finish_ns", "output_tokens")
    arrival, first, last, output = (np.asarray(requests[name]) for name in names)
    many = output > 1
    return {
        "ttft_s": (first - arrival).mean() / 1e9,
        "tpot_ms": ((last - first)[many] / (output[many] - 1)).mean() / 1e6,
        "e2e_s": (last - arrival).mean() / 1e9,
        "makespan_s": last.max() / 1e9,
    }


@pytest.mark.parametrize(
    ("metric", "real", "goal"),
    [("ttft_s", 65.5, 0.019), ("tpot_ms", 32.4, 0.01), ("e2e_s", 86.6, 0.01), ("makespan_s", 183.6, 0.01)],
)
def test_the_real_run_is_predicted(metric, real, goal):
    assert means()[metric] == pytest.approx(real, rel=goal)


def test_the_engines_own_scheduler_predicts_it_within_one_percent():
    real = {"ttft_s": 65.5, "tpot_ms": 32.4, "e2e_s": 86.6, "makespan_s": 183.6}
    assert means("replica.scheduler=vllm") == pytest.approx(real, rel=0.01)
    preempted = columns(shared(WORKLOAD), "replica.scheduler=vllm")["preemptions"]
    assert (
        np.asarray(preempted).sum() == 194
    )  # what docs/understand/vllm.md says; the engine's is not published


def test_without_its_prefix_cache_requests_take_longer():
    """Preempted requests then compute all their tokens again: 4.5 % more on average, about 6 % was expected.

    Who is preempted when depends on single blocks, so that one pair of runs says 3.9 to 5.2 %.
    """
    ratios = []
    for blocks in (BLOCKS - 24, BLOCKS - 12, BLOCKS, BLOCKS + 12, BLOCKS + 24):
        capacity = f"tiers.gpu.capacity={blocks} blocks"
        ratios.append(means(capacity, *NO_PREFIX_CACHE)["e2e_s"] / means(capacity)["e2e_s"])
    assert min(ratios) > 1.03
    assert np.mean(ratios) == pytest.approx(1.05, abs=0.015)


def test_a_third_more_blocks_shorten_the_queue():
    """31 % more blocks, as guessed from memory: about 12 % less."""
    more = f"tiers.gpu.capacity={int(BLOCKS * 1.31)} blocks"
    assert means(more)["e2e_s"] / means()["e2e_s"] == pytest.approx(0.88, abs=0.02)


def test_the_command_says_the_same(tmp_path, capsys):
    path = shared(WORKLOAD)
    out = tmp_path / "run"
    assert kvsim(["simulate", str(path), "-c", str(SCENARIO), "-o", str(out), "-q", "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["latency"]["e2e"]["avg"] == pytest.approx(1e3 * means()["e2e_s"], rel=1e-6)


@pytest.mark.parametrize("lookahead", ["none", "length", "stop-token"])
def test_both_schedulers_serve_it_alike(lookahead):
    """To the nanosecond, with some 190 preemptions: what vLLM's own decides, its recorded schedules judge."""
    own, engine = (
        columns(shared(WORKLOAD), f"replica.async_scheduling={lookahead}", f"replica.scheduler={scheduler}")
        for scheduler in ("kvsim", "vllm")
    )
    assert own["preemptions"].sum() > 180
    for name in ("preemptions", "first_token_ns", "finish_ns"):
        assert own[name].tolist() == engine[name].tolist(), name
