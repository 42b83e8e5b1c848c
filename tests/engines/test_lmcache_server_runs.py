"""``tiers.cpu.semantics: lmcache-server``: vLLM's pool above the memory of LMCache's server, with and without time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import RunOptions
from lmcache_server_model import DRAWN, SECOND, modelled, rows_and_times
from support.examples import examples
from support.product.machines import native_requests
from support.small_traces import trace_of

CHECKED = RunOptions(check="full")
BLOCK = 4
BLOCK_BYTES = BLOCK * 131_072
POLICIES = ("lru", "arc")


def ran(trace, gpu: int, levels: tuple[int, int], policy: str, chunk: int = 1, step: int = 8192, down=10**18):
    """Run steps of 10 µs, with copies of some ns unless ``down`` bytes a second go to the server.

    ``levels``: chunks of memory, and of storage.
    """
    chunks, disk = (f"capacity: {chunks * chunk} blocks" for chunks in levels)
    below = f", disk: {{{disk}}}" if levels[1] else ""
    cpu = f"{chunks}, policy: {policy}, semantics: lmcache-server, chunk_tokens: {chunk * BLOCK}"
    edges = ["cpu->gpu", *(["cpu->disk", "disk->cpu"] if below else [])]
    text = (
        f"cache: {{block_size: {BLOCK}}}\n"
        f"replica: {{max_num_batched_tokens: {step}, step_time: 'linear:base=10us'}}\n"
        f"tiers: {{gpu: {{capacity: {gpu} blocks}}, cpu: {{{cpu}}}{below}}}\n"
        f"channels: {{up: {{bandwidth: 1000PB/s, latency: 0s, edges: [{', '.join(edges)}]}}, "
        f"down: {{bandwidth: {down}B/s, latency: 0s, edges: [gpu->cpu]}}}}\n"
    )
    return execute(scenario_from_text(text, "s.yaml", Path.cwd(), []), trace, CHECKED)


def blocks_moved(done, edge: str) -> int:
    return done.run.counters.get(f"edge.{edge}.bytes", 0) // BLOCK_BYTES


def from_server(done) -> list[int]:
    """Return by request the tokens that both levels brought."""
    columns = (done.run.requests.get(f"cached_{tier}_tokens", 0) for tier in ("cpu", "disk"))
    return sum(columns).tolist()


def timed(rows, times_s, tokens=None):
    """Return the trace of prompts, each with an answer of 2 tokens that ends before the next one comes."""
    times_s = np.array(times_s) + np.arange(len(rows)) / 1024
    tokens = tokens or [BLOCK * len(row) for row in rows]
    trace = trace_of(rows, BLOCK, tokens, None, [2] * len(rows))
    return replace(trace, arrival_ns=(times_s * SECOND).astype(np.int64))


DISKS = st.sampled_from([0, 5, 40])


@given(DRAWN, st.integers(1, 30), DISKS, st.sampled_from(POLICIES), st.integers(1, 4))
@examples(30)
def test_an_instant_run_gives_the_replays_integers(drawn, chunks, disk, policy, step_chunks):
    """Between two prompts another one takes the whole pool, so that only the server has anything."""
    rows, times_s = rows_and_times(drawn)
    gpu = max(map(len, rows)) + 1
    rows = [part for k, row in enumerate(rows) for part in (row, [f"fill{k}.{n}" for n in range(gpu)])]
    tokens = [BLOCK * len(row) - k % 2 for k, row in enumerate(rows)]
    trace = timed(rows, np.repeat(times_s, 2), tokens)
    done = ran(trace, gpu, (chunks, disk), policy, step=BLOCK * step_chunks)
    alone = ReplayRequest(trace, BLOCK, chunks, step_tokens=BLOCK * step_chunks, disk_blocks=disk)
    want = REPLAYERS["lmcache-server"](alone, policy)
    requests, cache = done.run.requests, done.summary["cache"]
    assert not requests["cached_gpu_tokens"].any()
    assert sum(from_server(done)) == want["hit_tokens"]
    assert from_server(done)[:20] == want["first_20_hits"]
    assert (cache["evictions"]["cpu"], cache["dropped_blocks"]) == (
        want["cpu_evictions"],
        want["lost_chunks"],
    )
    assert blocks_moved(done, "gpu->cpu") == want["stored_chunks"]
    assert cache["evictions"]["disk"] == want.get("disk_evictions", 0)
    assert blocks_moved(done, "disk->cpu") == want.get("disk_hit_chunks", 0)


@given(DRAWN, st.integers(1, 30), DISKS, st.sampled_from(POLICIES), st.integers(0, 12), st.integers(1, 3))
@examples(30)
def test_a_look_up_begins_at_the_pools_whole_chunks(drawn, chunks, disk, policy, spare, per):
    """Chunks that the pool has are renewed and not looked up; one that it has in part is."""
    rows, times_s = rows_and_times(drawn)
    gpu = max(map(len, rows)) + 1 + spare
    trace = timed(rows, times_s)
    done = ran(trace, gpu, (chunks, disk), policy, per)
    pool = native_requests(ReplayRequest(trace, BLOCK, gpu, outputs="computed")).vllm(gpu)["hits"].tolist()
    in_chunks = [[tuple(row[: (k + 1) * per]) for k in range(len(row) // per)] for row in rows]
    want = modelled(
        in_chunks,
        trace.arrival_ns / SECOND,
        chunks,
        policy,
        0,
        10**6,
        [hit // BLOCK // per for hit in pool],
        disk,
    )
    requests, cache = done.run.requests, done.summary["cache"]
    assert requests["cached_gpu_tokens"].tolist() == pool
    loaded = [max(0, found * per * BLOCK - had) for found, had in zip(want["hits"], pool, strict=True)]
    assert from_server(done) == loaded
    assert blocks_moved(done, "disk->cpu") == sum(want["from_disk"]) * per
    assert cache["evictions"]["cpu"] == want["cpu_evictions"] * per
    assert cache["evictions"]["disk"] == want.get("disk_evictions", 0) * per
    assert cache["dropped_blocks"] == want["lost_chunks"] * per


@pytest.mark.parametrize("policy", POLICIES)
def test_chunks_that_are_written_are_not_found_and_not_dropped(policy):
    """9 of 10 chunks take 4.5 s to be written; the passes at 5, 6 and 8 s drop one each, the last one first."""
    trace = trace_of([[f"a{k}" for k in range(9)]] * 4, BLOCK, None, None, [2] * 4)
    trace = replace(trace, arrival_ns=np.array([0, 2.5e9, 4.7e9, 7.5e9], np.int64))
    done = ran(trace, 24, (10, 0), policy, down=2 * BLOCK_BYTES)
    assert done.run.requests["cached_gpu_tokens"].tolist() == [0, 32, 32, 32]
    assert done.run.requests["cached_cpu_tokens"].tolist() == [0, 0, 4, 0]
    assert done.summary["cache"]["evictions"]["cpu"] == 3
    assert done.run.counters["edge.gpu->cpu.bytes"] == 10 * BLOCK_BYTES


def test_a_look_up_renews_in_the_storage_what_the_pool_has():
    """Both levels have 16 of 20 chunks at 1 s and drop three, while ``a`` is used again: those of ``b`` are older.

    Its answer takes ``b`` from the pool. Then one chunk of ``b`` is left, in neither level the other three.
    """
    rows = [[f"{name}{k}" for k in range(4)] for name in "ab"]
    rows += [[f"fill{k}"] for k in range(8)] + [[*rows[0], "more"], [*rows[1], "end"]]
    trace = trace_of(
        rows, BLOCK, [4 * len(row) for row in rows[:-2]] + [17, 17], None, [2] * 10 + [25_000, 2]
    )
    at_ns = np.array([*(0.05 * k for k in range(10)), 0.9, 2.0]) * SECOND
    done = ran(replace(trace, arrival_ns=at_ns.astype(np.int64)), 6_256, (20, 20), "lru")
    requests = done.run.requests
    assert requests["cached_gpu_tokens"].tolist()[-2:] == [16, 0]
    assert from_server(done)[-2:] == [0, 4]
    assert [done.summary["cache"]["evictions"][tier] for tier in ("cpu", "disk")] == [3, 3]


def test_chunks_that_are_read_are_renewed_in_the_storage():
    """At 1 s memory has 16 of 20 chunks and drops three, of ``a``, which a long answer brings back at 1.8 s.

    At 2 s the storage has 20 of 25 and drops four: the first of ``a``, which was in memory, and three of ``b``.
    """
    rows = [[f"{name}{k}" for k in range(4)] for name in "ab"]
    rows += [[f"fill{k}"] for k in range(12)] + [[*rows[0], "more"], [*rows[1], "end"]]
    answers = [25_000 if k in (9, 14) else 2 for k in range(16)]
    trace = trace_of(rows, BLOCK, [4 * len(row) for row in rows[:-2]] + [17, 17], None, answers)
    at_ns = np.array([*(0.05 * k for k in range(10)), 1.1, 1.15, 1.2, 1.25, 1.8, 3.0]) * SECOND
    done = ran(replace(trace, arrival_ns=at_ns.astype(np.int64)), 6_256, (20, 25), "lru")
    assert done.run.requests["cached_cpu_tokens"].tolist()[-2:] == [4, 4]
    assert done.run.requests["cached_disk_tokens"].tolist()[-2:] == [12, 0]


def test_the_policy_has_no_default():
    cpu = "{capacity: 9 blocks, semantics: lmcache-server}"
    text = f"cache: {{semantics: vllm}}\ntiers: {{gpu: {{capacity: 9 blocks}}, cpu: {cpu}}}\n"
    with pytest.raises(UsageError, match=r"add tiers\.cpu\.policy: lru or arc"):
        scenario_from_text(text, "s.yaml", Path.cwd(), [])
