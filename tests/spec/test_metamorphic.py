"""Runs whose answers are known from other runs: scaled, relabelled, unbounded, with a tier more."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import Trace
from support.clusters import cluster, table
from support.product.models import Residuals
from support.traces import random_trace

TIMES = ("queue_ns", "prefill_ns", "first_token_ns", "finish_ns")


def with_table(settings: ClusterSettings, factor: int) -> ClusterSettings:
    exact = replace(table(), pair_half_fs=0, spread_decode_fs=0, spread_mixed_fs=0, past_fs=1_000_000)
    exact = replace(exact, idle_fs=0, past_base_ns=exact.base_ns // 1_000 * 999, residuals=Residuals())
    scaled = replace(
        exact,
        base_ns=exact.base_ns * factor,
        past_base_ns=exact.past_base_ns * factor,
        decode_base_ns=exact.decode_base_ns * factor,
        alongside_fs=exact.alongside_fs * factor,
        kv_decode_fs=exact.kv_decode_fs * factor,
        kv_mixed_fs=exact.kv_mixed_fs * factor,
        sequence_fs=exact.sequence_fs * factor,
        past_fs=exact.past_fs * factor,
    )
    return replace(settings, machines=tuple(replace(m, step_time=scaled) for m in settings.machines))


@pytest.mark.parametrize("factor", [2, 7])
def test_all_times_scaled_scale_every_latency(factor):
    trace = random_trace(1)
    slow = replace(trace, arrival_ns=trace.arrival_ns * factor)
    once = simulate(with_table(cluster((160,)), 1), trace).requests
    scaled = simulate(with_table(cluster((160,)), factor), slow).requests
    for name in TIMES:
        np.testing.assert_array_equal(once[name] * factor, scaled[name])


def test_relabelled_ids_change_nothing():
    trace = random_trace(2)
    names = np.random.default_rng(5).permutation(trace.distinct_ids).astype(np.uint32)
    relabelled = replace(trace, block_ids=names[trace.block_ids])
    settings = cluster((90, 60, 400), 2)
    assert simulate(settings, trace).digest_results == simulate(settings, relabelled).digest_results


def upper_bound_blocks(trace: Trace, block: int) -> int:
    """Return the leading blocks that any earlier prompt or answer showed, requests one after another."""
    per, seen, hits = trace.block_size // block, set(), 0
    for r in range(len(trace)):
        ids = trace.block_ids[trace.id_offsets[r] : trace.id_offsets[r + 1]].tolist()
        n = int(trace.input_tokens[r])
        keys = [(ids[k // per], k % per) for k in range(min(n // block, len(ids) * per))]
        usable = keys[: (n - 1) // block]
        hits += next((i for i, key in enumerate(usable) if key not in seen), len(usable))
        seen.update(keys)
    return hits


def test_an_unbounded_tier_reaches_the_ceiling_one_after_another():
    trace = replace(random_trace(3), session=np.full(120, -1, np.int32))
    trace = replace(trace, arrival_ns=np.arange(120, dtype=np.int64) * 10**12)
    settings = cluster((160,))
    machine = replace(settings.machines[0], tiers=(TierSettings("gpu", None),))
    run = simulate(replace(settings, machines=(machine,)), trace)
    assert run.requests["cached_prefix_length_used"].sum() == 16 * upper_bound_blocks(trace, 16)
    assert run.counters["evictions.gpu"] == 0


def test_a_lower_tier_that_is_used_changes_ttft_and_one_never_used_changes_nothing():
    trace = random_trace(1)
    alone, below = (simulate(cluster(tiers), trace).requests for tiers in ((90,), (90, 200)))
    assert below["cached_cpu_tokens"].sum() > 0
    assert (below["cached_prefix_length_used"] != alone["cached_prefix_length_used"]).any()
    assert (below["first_token_ns"] != alone["first_token_ns"]).any()
    wide, unused = (simulate(cluster(tiers), trace).requests for tiers in ((6000,), (6000, 200)))
    for name in (*TIMES, "cached_gpu_tokens"):
        np.testing.assert_array_equal(wide[name], unused[name])
