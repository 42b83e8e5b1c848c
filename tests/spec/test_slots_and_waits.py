"""Slots, waits and recomputed tokens, which hardly change a total: each against a closed form or a count of its own."""

from dataclasses import replace

import pytest
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.speculation import SpeculationRules, SpeculationSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import agree
from support.clusters import cluster, reading_each_other
from support.pools import MS, pools, requests
from support.small_traces import trace_of
from support.traces import random_trace, turns

WINDOW = (0, 2**62)
#: The core, and the specification over its own store.
both = pytest.mark.parametrize("engine", ["native", "spec-plain"])


@pytest.mark.parametrize(
    ("scheduler", "launches", "stages", "steps"),
    [
        ("vllm", "none", 1, 1),
        ("vllm", "length", 1, 2),
        ("vllm", "stop-token", 1, 2),
        ("vllm", "length", 2, 3),
        ("vllm", "length", 4, 5),
        ("vllm", "none", 3, 3),
        ("sglang", "length", 1, 1),
        ("kvsim", "length", 1, 1),
    ],
)
def test_steps_in_flight_are_those_of_the_stages_or_the_next_launch(scheduler, launches, stages, steps):
    settings = ReplicaSettings(scheduler=scheduler, async_scheduling=launches, stages=stages)
    assert settings.steps_in_flight == steps


@pytest.mark.parametrize("loses", [False, True])
def test_settings_of_an_engine_that_follow_from_others(loses):
    plain = ReplicaSettings(max_num_seqs=5, client_offset_ns=7, client_offset_per_token_ns=3)
    assert (plain.drafted_tokens, plain.most_decode_tokens, plain.lost_blocks) == (0, 5, 0)
    drafts = replace(plain, speculation=SpeculationSettings((1.0, 0.5, 0.0), loses_last_block=loses))
    assert (drafts.drafted_tokens, drafts.most_decode_tokens, drafts.lost_blocks) == (3, 20, int(loses))
    assert SpeculationRules.of(drafts.speculation).thresholds == (2**64 - 1, 2**63, 0)
    assert (plain.has_client_time, ReplicaSettings().has_client_time) == (True, False)


@both
def test_a_loading_request_holds_a_slot(engine):
    # the second prompt drives the first one's tail to the cpu; the third reads it back, a millisecond a block,
    # and the fourth, which needs nothing but a slot, waits until the third has ended
    rows = [list("abcd"), list("efghijkl"), list("abcdx"), list("y")]
    trace = trace_of(rows, block_size=16, arrival_ns=[0, 20 * MS, 60 * MS, 61 * MS])
    settings = pools("b", tiers=(9, 50), max_num_seqs=1)
    done = simulate(settings, trace, options=RunOptions(check="full", engine=engine)).requests
    assert done["cached_cpu_tokens"][2] == 3 * 16
    assert done["fetch_cpu_ns"][2] > MS
    assert done["queue_ns"][3] == done["finish_ns"][2] - 61 * MS


@pytest.mark.parametrize("block", [8, 16])
def test_only_requests_that_share_a_block_wait_for_it(block):
    """Ids of two blocks or one, all come at once: the second prompt shares one id with the first, the third two."""
    rows = [list("abcd"), list("axyz"), list("abxy")]
    settings = pools("b", tiers=(100,), duplicate_prefill="wait")
    settings = replace(settings, cache=replace(settings.cache, block_size_tokens=block))
    run = agree(settings, trace_of(rows, block_size=16))
    assert run.requests["cached_prefix_length_used"].tolist() == [0, 16, 32]
    alone = agree(settings, trace_of([list("abcd"), list("wxyz")], block_size=16))
    assert alone.requests["queue_ns"].tolist() == [0, 0]


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_block_within_an_id_is_waited_for_too(kept):
    """Ids of two blocks: of the first prompt's four, the second leaves some; two then share those it drove out."""
    rows = [list("ab"), list("wxyz"), list("abc"), list("abd")]
    trace = trace_of(rows, block_size=16, arrival_ns=[0, 50 * MS, 100 * MS, 100 * MS])
    settings = pools("b", tiers=(8 + kept,), duplicate_prefill="wait")
    settings = replace(settings, cache=replace(settings.cache, block_size_tokens=8))
    done = agree(settings, trace).requests
    assert done["cached_prefix_length_used"].tolist() == [0, 0, 8 * kept, 32]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_paused_sessions_come_up_from_other_machines_as_in_the_specification(seed):
    settings = reading_each_other(machines=2, prefetch="session", prefetch_lead_ns=50 * MS)
    assert agree(settings, turns(seed, True, 80)).counters["prefetched_blocks"] > 100


@both
def test_a_wait_is_the_cpus_until_its_kv_is_here_and_the_disks_only_then(engine):
    options = RunOptions(engine=engine)
    run = simulate(cluster((90, 60, 400), pipelined=False), random_trace(5), options=options)
    rows = run.requests
    from_both = (rows["cached_cpu_tokens"] > 0) & (rows["cached_disk_tokens"] > 0)
    assert from_both.any()
    assert (rows["fetch_cpu_ns"][from_both] > 0).any()


def test_tokens_computed_again_are_those_of_the_steps_beyond_the_prompts():
    settings, trace = pools("b", tiers=(20,)), requests(*[(0, 64, 60)] * 4)
    rows = agree(settings, trace).requests
    run = simulate(settings, trace, options=RunOptions(record_window_ns=WINDOW, check="full"))
    assert rows["preemptions"].any()
    kinds = run.events["kind"]
    step = kinds.codes == kinds.words.index("step")
    computed = int(run.events["tokens"][step].sum())
    first = int((rows["input_tokens"] - rows["cached_prefix_length_used"]).sum())
    # a prefill after a preemption computes what had KV and is no longer cached, and the last token shown
    assert computed == first + int(rows["recomputed_tokens"].sum() + rows["preemptions"].sum())
