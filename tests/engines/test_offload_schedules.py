"""CPU offloading below vLLM's own scheduler: times by hand, and what is refused.

``test_engine_streams.py`` has recorded streams of vLLM's own classes, ``make oracles`` fresh ones.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import cluster
from support.small_traces import trace_of

US = 1_000
SIMPLE = "vllm-simple-kv-offload"
A, B = [f"a{k}" for k in range(4)], [f"b{k}" for k in range(6)]


def run(
    rows,
    arrivals_us,
    blocks=(6, 40),
    lower="vllm-offload",
    channel=None,
    groups=None,
    lazy_tokens=None,
    **changes,
):
    """Serve prompts of whole blocks and one token; a step takes 5 ms and 20 us a token, a block's copy 1 ms."""
    answers = changes.pop("answers", [1] * len(rows))
    trace = trace_of(rows, 16, [16 * len(row) for row in rows], [at * US for at in arrivals_us], answers)
    settings = cluster(blocks)
    cache = CacheSettings(
        block_size_tokens=16, semantics="vllm", lower_semantics=lower, kv_bytes_per_token=4_000, num_layers=4
    )
    cache = replace(cache, lower_lazy_tokens=lazy_tokens)
    if groups is not None:
        cache = replace(cache, groups=groups, num_layers=1)
    replica = ReplicaSettings(
        **{"max_num_batched_tokens": 512, "max_num_seqs": 8, "scheduler": "vllm", **changes}
    )
    machine = replace(
        settings.machines[0],
        replica=replica,
        step_time=load_step_time("linear:base=5ms,token=20us,decode=0us,context=0ns"),
    )
    channels = {
        name: replace(
            one, bandwidth_bytes_per_s=64_000_000, latency_ns=0, piece_overhead_ns=0, **(channel or {})
        )
        for name, one in settings.channels.items()
    }
    settings = replace(settings, machines=(machine,), cache=cache, channels=channels)
    return Simulation(settings, trace, RunOptions(check="full")).run().requests


def parts_us(rows, request):
    names = ("queue_ns", "fetch_room_ns", "fetch_cpu_ns", "prefill_ns")
    return [int(rows[name][request]) // US for name in names]


def cached(rows, request):
    return int(rows["cached_gpu_tokens"][request]), int(rows["cached_cpu_tokens"][request])


def test_a_prompt_that_left_the_pool_waits_for_its_load():
    rows = run([A, B, [*A, "c"]], [0, 20_000, 50_000])
    # four blocks at 1 ms, then 16 tokens
    assert (parts_us(rows, 2), cached(rows, 2)) == ([0, 0, 4_000, 5_320], (0, 64))


def test_the_second_offloader_loads_all_but_a_last_block():
    rows = run([A, B, A], [0, 20_000, 50_000], lower=SIMPLE)
    assert (parts_us(rows, 2), cached(rows, 2)) == ([0, 0, 3_000, 5_320], (0, 48))


def test_lazy_stores_keep_the_queue_of_free_blocks_and_no_more():
    """A step of 16 tokens looks at two free blocks: all four of A are stored before B takes any."""
    small = {"max_num_batched_tokens": 16, "lower": SIMPLE, "lazy_tokens": 16}
    rows = run([A, B, [*A, "c"]], [0, 80_000, 200_000], **small)
    assert cached(rows, 2) == (0, 64)


@pytest.mark.parametrize("cpu", [4, 8])
def test_lazy_stores_that_evict_each_other_keep_a_request_out_without_end(cpu):
    """Two steps' stores fill a tier of four blocks in turn, and hold blocks that the last prompt needs."""
    rows = [[f"a{k}" for k in range(6)], ["x"], [f"b{k}" for k in range(7)]]
    small = {"max_num_batched_tokens": 64, "lower": SIMPLE, "lazy_tokens": 64, "async_scheduling": "length"}
    raises = pytest.raises(KvsimError, match="wait without end") if cpu == 4 else nullcontext()
    with raises:
        run(rows, [0, 0, 1_000], (8, cpu), answers=[3, 4, 2], **small)


def test_of_a_prompt_found_whole_one_token_is_computed():
    rows = run([A, B, [*A, "c"], A], [0, 20_000, 50_000, 100_000])
    # the pool gives three of its blocks, the tier the last one
    assert (parts_us(rows, 3), cached(rows, 3)) == ([0, 0, 1_000, 5_020], (48, 16))


def test_over_a_window_a_prompt_found_whole_is_a_token_short():
    """The hit of 63 tokens ends in the last block: four blocks of full attention and two of the window are loaded."""
    groups = (KvGroup("full", 16, 0, (0,)), KvGroup("sliding", 16, 20, (0,)))
    settings = GroupSettings("two", KvLayout(groups, 64_000, 1), 512, None, 4096)
    rows = run([A, B, A], [0, 30_000, 60_000], (13, 40), groups=settings)
    assert (parts_us(rows, 2), cached(rows, 2)) == ([0, 0, 6_000, 5_020], (0, 63))


def test_a_request_whose_blocks_are_being_loaded_lets_others_pass_and_hits_the_pool_then():
    before = [A, [*B, *"xyz"]]
    rows = run([*before, [*A, "c"], [*A, "d"], ["e"]], [0, 20_000, 50_000, 50_500, 51_000], (9, 40))
    # "e" runs from 51.0 to 56.32 ms; the load ends at 54, which is seen then
    assert parts_us(rows, 4) == [0, 0, 0, 5_320]
    assert (parts_us(rows, 2), cached(rows, 2)) == ([0, 0, 6_320, 5_640], (0, 64))
    assert (parts_us(rows, 3), cached(rows, 3)) == ([5_820, 0, 0, 5_640], (64, 0))


def test_a_step_waits_for_stores_of_the_blocks_that_it_is_given():
    rows = run([A, B], [0, 7_000])
    # the store of A, sent when its step ended at 6.28 ms, ends at 10.28
    assert parts_us(rows, 1) == [0, 3_280, 0, 6_920]


def test_a_step_waits_for_what_a_request_that_has_just_ended_stores_at_last():
    """The tier has space for Z's blocks alone, whose store ends at 11.56 ms: within A's last step, to 12.58.

    The step after it stores A's blocks and gives two of them to B.
    """
    rows = run([["z1", "z2", "z3", "z4"], A, B], [0, 0, 1_000], (9, 4), answers=[1, 2, 1])
    assert parts_us(rows, 2) == [11_580, 4_000, 0, 6_920]


def test_lmcache_loads_first_and_saves_last_within_a_step():
    rows = run([A, B, [*A, "c"], A], [0, 20_000, 50_000, 100_000], lower="lmcache")
    # 64 tokens, then four blocks at 1 ms; later four blocks, 16 tokens and one block
    assert parts_us(rows, 0) == [0, 0, 0, 6_280 + 4_000]
    assert (parts_us(rows, 2), cached(rows, 2)) == ([0, 0, 4_000, 5_320 + 1_000], (0, 64))
    assert (parts_us(rows, 3), cached(rows, 3)) == ([0, 0, 1_000, 5_020], (48, 16))


def test_requests_of_a_step_wait_along_for_what_lmcache_loads_and_saves():
    rows = run([A, B, [*A, "c"], ["e"]], [0, 20_000, 50_000, 50_000], (9, 40), "lmcache")
    assert (parts_us(rows, 2), cached(rows, 2)) == ([0, 0, 1_000, 5_640 + 2_000], (48, 16))
    assert parts_us(rows, 3) == [0, 0, 0, 1_000 + 5_640 + 2_000]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lower": SIMPLE, "scheduler": "kvsim"}, "lies below vLLM's scheduler alone"),
        ({"lower": "lmcache-server"}, "does not lie below vLLM's scheduler"),
        ({"lower": "lmcache", "blocks": (6, 40, 40)}, "no such tier below"),
        ({"stages": 2}, "no micro-batches"),
        ({"channel": {"sharing": "fair"}}, "first come, first served"),
    ],
)
def test_what_is_not_simulated_is_refused(changes, why):
    with pytest.raises(KvsimError, match=why):
        run([A], [0], **changes)
