"""HiCache below SGLang's own scheduler: times by hand, sums of drawn runs, what is refused.

``test_engine_streams.py`` has recorded streams of SGLang's own classes, ``make oracles`` fresh ones.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError, StoreError
from kvcache_sim.cache.settings import CacheSettings, StoragePrefetch
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import cluster
from support.examples import examples
from support.small_traces import trace_of
from support.tiered_scenario import load
from support.traces import random_trace, with_aborts

MS = 10**6


def run(trace, pages=(40, 100), write="through", page=16, prefetch=None, **changes):
    """Serve a trace; a step takes 5 ms and 20 us a token, the copy of a page 1 ms, layer by layer of four."""
    replica = ReplicaSettings(
        **{"max_num_batched_tokens": 512, "max_num_seqs": 8, "scheduler": "sglang", **changes}
    )
    settings = cluster(pages)
    cache = CacheSettings(
        block_size_tokens=page,
        semantics="sglang",
        lower_semantics="hicache",
        lower_write=write,
        lower_prefetch=prefetch,
        kv_bytes_per_token=4_000,
        num_layers=4,
    )
    machine = replace(
        settings.machines[0],
        replica=replica,
        step_time=load_step_time("linear:base=5ms,token=20us,decode=0us,context=0ns"),
    )
    rate = page * 4_000 * 1_000
    channels = {
        name: replace(channel, bandwidth_bytes_per_s=rate, latency_ns=0, piece_overhead_ns=0)
        for name, channel in settings.channels.items()
    }
    settings = replace(settings, machines=(machine,), cache=cache, channels=channels)
    return Simulation(settings, trace, RunOptions(check="full")).run()


def ttft_ns(done):
    return (done.requests["first_token_ns"] - done.requests["arrival_ns"]).tolist()


def two_prompts(last, arrivals_ms, answers=(1, 1, 1)):
    """Two prompts of 30 pages that do not fit together, and a third one."""
    rows = [[f"a{k}" for k in range(30)], [f"b{k}" for k in range(30)], last]
    return trace_of(rows, 16, [16 * len(row) for row in rows], [ms * MS for ms in arrivals_ms], list(answers))


AGAIN = [f"a{k}" for k in range(30)] + ["c"]


def test_a_step_waits_for_its_load_layer_by_layer():
    done = run(two_prompts(AGAIN, (0, 1_000, 2_000)), async_scheduling="none")
    third = {name: int(done.requests[name][2]) for name in ("cached_cpu_tokens", "cached_gpu_tokens")}
    assert third == {"cached_cpu_tokens": 480, "cached_gpu_tokens": 0}
    # 30 pages come in 30 ms, a layer every 7.5 ms; the last layer's share of 5.32 ms of computing is left then
    computing, last_layer = 5_320_000, 1_330_000
    assert ttft_ns(done)[2] == 30 * MS + last_layer
    assert done.requests["fetch_cpu_ns"][2] == 30 * MS + last_layer - computing
    assert done.requests["prefill_ns"][2] == computing


def test_the_scheduler_waits_while_it_writes_back():
    """The second prompt's step begins once a whole leaf, the first one's 30 pages, has been written."""
    done = run(two_prompts(["c"], (0, 1_000, 2_000)), write="back", async_scheduling="none")
    step = 5 * MS + 480 * 20_000
    assert ttft_ns(done)[:2] == [step, 30 * MS + step]


def test_a_request_that_comes_while_the_scheduler_waits_is_in_the_next_step():
    """The second prompt's step begins at 1,030 ms; the third request, of one page, came at 1,010 ms."""
    done = run(two_prompts(["c"], (0, 1_000, 1_010), (1, 4, 1)), write="back", async_scheduling="length")
    step, page_step = 5 * MS + 480 * 20_000, 5 * MS + 16 * 20_000
    assert ttft_ns(done)[1:] == [30 * MS + step, 20 * MS + step + page_step]


def test_a_written_page_stays_until_its_copy_ends():
    """The second prompt's pages are being written until 30 ms after the first one's end."""
    step = 5 * MS + 480 * 20_000
    done = run(two_prompts(["c"], (0, 20, 2_000)), async_scheduling="none")
    first_ends = step
    assert ttft_ns(done)[1] == first_ends + 30 * MS - 20 * MS + step


def run_again(stop, pages=30, **limits):
    """Serve three prompts of which the GPU holds one and the host two, then the first again; a storage has all."""
    rows = [[f"{name}{k}" for k in range(pages)] for name in "abd"]
    rows.append([*rows[0], "c"])
    tokens, arrivals = [16 * len(row) for row in rows], [seconds * 1_000 * MS for seconds in range(4)]
    trace = trace_of(rows, 16, tokens, arrivals, [1] * 4)
    prefetch = StoragePrefetch(stop, threshold_tokens=480, **limits)
    return run(trace, (pages + 10, 2 * pages + 2, None), prefetch=prefetch, async_scheduling="none")


def served(stop, **limits):
    done = run_again(stop, **limits)
    return ttft_ns(done)[3], int(done.requests["cached_cpu_tokens"][3]), done.counters["prefetched_blocks"]


def test_a_prefetch_that_is_cut_short_reads_no_further_batch():
    """Its first batch takes 128 ms, of which the request waits for 10."""
    done = run_again("timeout", 200, timeout_ns=10 * MS, timeout_per_ki_token_ns=0)
    assert done.counters["edge.disk->cpu.bytes"] == 128 * 64_000
    assert done.counters["prefetched_blocks"] == 0


def test_a_request_waits_for_its_prefetch_as_long_as_its_policy_says():
    """Its 30 pages come from the storage in 30 ms, in one batch, and then to the GPU as above."""
    loaded, computed = 30 * MS + 1_330_000, 5 * MS + 496 * 20_000
    assert served("wait") == (30 * MS + loaded, 480, 30)
    assert served("timeout", timeout_ns=30 * MS, timeout_per_ki_token_ns=0) == (30 * MS + loaded, 480, 30)
    assert served("best-effort") == (computed, 0, 0)
    # a batch that is being read is not used; the request waits until its time is over
    late = 10 * MS + 480 * MS // 1024 + 1
    assert served("timeout", timeout_ns=10 * MS, timeout_per_ki_token_ns=MS) == (late + computed, 0, 0)


@pytest.mark.parametrize("prefetch", [StoragePrefetch("wait"), StoragePrefetch("timeout", 10 * MS, 0)])
def test_a_request_that_waits_for_the_storage_is_passed(prefetch):
    """The last request comes at the last instant at which the one before it waits."""
    rows = [*([f"{name}{k}" for k in range(30)] for name in "abd"), AGAIN, ["x"]]
    arrivals = [ms * MS for ms in (0, 1_000, 2_000, 3_000, 3_010)]
    trace = trace_of(rows, 16, [16 * len(row) for row in rows], arrivals, [1] * 5)
    done = run(trace, (40, 62, None), prefetch=prefetch, async_scheduling="none")
    assert done.requests["first_token_ns"][4] == 3_010 * MS + 5 * MS + 16 * 20_000


writes = st.sampled_from(["back", "through", "selective"])


@examples(40)
@given(
    write=writes,
    pages=st.sampled_from([(110, 40), (130, 300), (200, 90)]),
    mode=st.sampled_from(["none", "length", "stop-token"]),
    policy=st.sampled_from(["fcfs", "lpm", "dfs-weight"]),
    seed=st.integers(1, 9),
)
def test_what_the_host_serves_is_what_is_loaded(write, pages, mode, policy, seed):
    trace = random_trace(seed, requests=40, sessions=7)
    done = run(trace, pages, write, async_scheduling=mode, schedule_policy=policy)
    loaded = done.counters.get("edge.cpu->gpu.bytes", 0) // 4_000
    served = int(done.requests["cached_cpu_tokens"].sum())
    preempted = done.requests["preemptions"].sum() > 0
    assert served == loaded or (preempted and served < loaded)
    assert done.requests["finish_ns"].min() > 0


@examples(40)
@given(
    write=st.sampled_from(["through", "selective"]),
    pages=st.sampled_from([(120, 60, None), (150, 150, 300), (250, 120, 200)]),
    stop=st.sampled_from(["wait", "timeout", "best-effort"]),
    mode=st.sampled_from(["none", "length"]),
    seed=st.integers(1, 9),
)
def test_clients_abort_while_the_storage_works(write, pages, stop, mode, seed):
    """The invariants hold at every event, all requests end, and what is prefetched has been read."""
    prefetch = StoragePrefetch(stop, 20 * MS, 10 * MS, threshold_tokens=32)
    trace = with_aborts(seed)
    done = run(trace, pages, write, prefetch=prefetch, async_scheduling=mode)
    assert done.counters["prefetched_blocks"] <= done.counters.get("edge.disk->cpu.bytes", 0) // 64_000
    aborts = done.requests["status"] == STATUSES.index("aborted")
    assert aborts.any()
    assert done.requests["finish_ns"][~aborts].min() > 0


def test_write_back_ends_where_the_engine_runs_out_of_memory():
    """A node cannot be dropped while one below it, on the host, is being written to the storage."""
    with pytest.raises(StoreError, match="out of memory, as SGLang would be"):
        run(random_trace(1), (120, 60, None), "back", prefetch=StoragePrefetch("wait"))


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("fetch.layer_pipelining=false", "a load layer by layer"),
        ("channels.gpu-to-cpu.sharing=fair", "first come, first served"),
        ("channels.gpu-to-cpu.scope=cluster", "each machine has its own"),
    ],
)
def test_what_is_not_simulated_is_one_line(setting, why):
    base = ["replica.scheduler=sglang", "tiers.cpu.semantics=hicache", "write.policy=through", "tiers.disk="]
    with pytest.raises(KvsimError, match=why):
        load(*base, setting)
