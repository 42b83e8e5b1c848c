"""The shape of a published study: TTFT over network bandwidth falls steeply, then flattens (Mooncake, FAST'25)."""

from itertools import pairwise

import pytest
from support.tiered_scenario import summary_with

#: Four machines whose sessions wander, so that most KV is on another machine; long prompts, as in the study.
POOL = (
    "cluster.machines=4",
    "tiers.disk=null",
    "tiers.cpu.capacity=6000 blocks",
    "workload.first_input_tokens={kind: lognormal, median: 6000, sigma: 0.6, min: 1024, max: 16384}",
    "workload.arrivals={process: poisson, rate_per_s: 2}",
    "tiers.gpu.capacity=1500 blocks",
    "fetch.lookup=cluster",
)


def mean_ttft_ms(gbps: int, *more: str) -> float:
    summary = summary_with(*POOL, f"channels.net.bandwidth={gbps}Gb/s", *more)
    return summary["latency"]["ttft"]["avg"]


@pytest.fixture(scope="module")
def means() -> dict[int, float]:
    return {gbps: mean_ttft_ms(gbps) for gbps in (24, 50, 100, 200, 400)}


def test_mean_ttft_falls_steeply_and_flattens(means):
    falls = [slow - fast for slow, fast in pairwise(means.values())]
    assert falls == sorted(falls, reverse=True)
    assert falls[0] > 3 * falls[-1] >= 0
    assert means[24] > 1.15 * means[400]


def test_below_some_bandwidth_loading_loses_to_recomputing(means):
    alone = summary_with(*POOL[:-1])["latency"]["ttft"]["avg"]
    assert means[400] < alone
    assert mean_ttft_ms(1) > alone
    assert mean_ttft_ms(1, "fetch.policy=cheaper") < mean_ttft_ms(1)
