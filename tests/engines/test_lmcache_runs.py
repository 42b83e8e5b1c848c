"""``tiers.cpu.semantics: lmcache``: vLLM's pool with LMCache's CPU and disk below, in runs with and without
time."""

from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.engine_requests import block_keys
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import RunOptions, simulate
from support.examples import examples
from support.instant_runs import instant
from support.product.machines import native_requests
from support.small_traces import trace_of, tree_traces

CHECKED = RunOptions(check="full")
POLICIES = ("lru", "lfu", "fifo", "mru")
BLOCK_BYTES = 4 * 131_072
EDGES = ("gpu->cpu", "cpu->gpu", "cpu->disk", "disk->cpu")


def scenario(gpu: int, cpu: int, disk: int, policy: str, block: int = 4) -> str:
    tiers = f"gpu: {{capacity: {gpu} blocks}}, "
    tiers += f"cpu: {{capacity: {cpu} blocks, policy: {policy}, semantics: lmcache}}"
    tiers += f", disk: {{capacity: {disk} blocks}}" if disk else ""
    return f"cache: {{block_size: {block}}}\ntiers: {{{tiers}}}\n"


CHUNKED = (
    "cache: {{block_size: 16}}\nfetch: {{layer_pipelining: false}}\n"
    "tiers: {{gpu: {{capacity: 60 blocks}}, "
    "cpu: {{capacity: {cpu} blocks, semantics: lmcache, chunk_tokens: 256}}{disk}}}\n"
    f"channels: {{{{up: {{{{bandwidth: {100 * 16 * 131_072}B/s, latency: 0s, edges: [cpu->gpu]}}}}{{wire}}}}}}\n"
)


@pytest.mark.parametrize(("cpu", "disk", "ttft_s", "read"), [(320, 0, 0.1, 0), (39, 320, 1.7, 16)])
def test_chunks_of_256_tokens_above_blocks_of_16(cpu, disk, ttft_s, read):
    """A prompt of 600 tokens, another one, and the first again: 2 chunks are kept, 22 blocks are left on the GPU.

    38 blocks each: the second prompt takes the 22 free ones, the first's partial block and its last 15 whole ones.
    10 blocks are loaded at 100 a second; from the disk its whole chunk comes first, 16 blocks at 10 a second.
    """
    rows = [[f"{name}{k}" for k in range(38)] for name in "aba"]
    trace = trace_of(rows, 16, [600] * 3, [0, 100 * 10**9, 200 * 10**9])
    lower = f", disk: {{capacity: {disk} blocks}}" if disk else ""
    wire = f", below: {{bandwidth: {10 * 16 * 131_072}B/s, latency: 0s, edges: [disk->cpu]}}" if disk else ""
    done = instant(CHUNKED.format(cpu=cpu, disk=lower, wire=wire), trace, CHECKED)
    third = {name: column[2] for name, column in done.run.requests.items()}
    tier = "disk" if disk else "cpu"
    assert (third["cached_gpu_tokens"], third[f"cached_{tier}_tokens"]) == (352, 160)
    assert third["first_token_ns"] - third["arrival_ns"] == round(ttft_s * 1e9)
    blocks = {edge: done.run.counters.get(f"edge.{edge}.bytes", 0) / (16 * 131_072) for edge in EDGES}
    assert blocks == {"gpu->cpu": 64, "cpu->gpu": 10, "cpu->disk": 64 * bool(disk), "disk->cpu": read}


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_the_server_brings_a_chunk_of_its_storage_whole(policy):
    """As above with a memory of 2 chunks: the first pass drops the second one, and one free chunk is too few for two.

    The pool has the first chunk and 6 blocks of the second, which comes from the storage: 16 blocks at 10 a second,
    then 10 at 100. Meanwhile a pass finds memory full again and drops the first chunk.
    """
    rows = [[f"{name}{k}" for k in range(38)] for name in "aba"]
    trace = trace_of(rows, 16, [600] * 3, [0, 10**11, 2 * 10**11], [2] * 3)
    text = CHUNKED.replace("semantics: lmcache", f"semantics: lmcache-server, policy: {policy}")
    wire = f", below: {{bandwidth: {10 * 16 * 131_072}B/s, latency: 0s, edges: [disk->cpu]}}"
    done = instant(text.format(cpu=39, disk=", disk: {capacity: 320 blocks}", wire=wire), trace, CHECKED)
    third = {name: column[2] for name, column in done.run.requests.items()}
    found = [third[f"cached_{tier}_tokens"] for tier in ("gpu", "cpu", "disk")]
    assert found == [352, 0, 160]
    assert third["first_token_ns"] - third["arrival_ns"] == 1_700_000_000
    blocks = {edge: done.run.counters.get(f"edge.{edge}.bytes", 0) / (16 * 131_072) for edge in EDGES}
    assert blocks == {"gpu->cpu": 32, "cpu->gpu": 10, "cpu->disk": 32, "disk->cpu": 16}
    assert (done.summary["cache"]["evictions"]["cpu"], done.summary["cache"]["dropped_blocks"]) == (32, 32)


def test_chunks_of_narrower_blocks():
    """At half the width the same 10 blocks take half the time, and a chunk fits in half the memory."""
    trace = trace_of(
        [[f"{name}{k}" for k in range(38)] for name in "aba"], 16, [600] * 3, [0, 10**11, 2 * 10**11]
    )
    text = CHUNKED.replace("chunk_tokens: 256", "chunk_tokens: 256, kv_ratio: 0.5")
    done = instant(text.format(cpu=320, disk="", wire=""), trace, CHECKED)
    assert done.run.requests["cached_cpu_tokens"].tolist() == [0, 0, 160]
    assert (done.run.requests["first_token_ns"] - done.run.requests["arrival_ns"]).tolist()[2] == 50_000_000
    blocks = {edge: done.run.counters[f"edge.{edge}.bytes"] / (16 * 131_072) for edge in EDGES[:2]}
    assert blocks == {"gpu->cpu": 32, "cpu->gpu": 5}
    sized = text.replace("{cpu} blocks", "{cpu}").format(cpu="{cpu}", disk="", wire="")
    assert instant(sized.replace("{cpu}", "16MiB"), trace, CHECKED).run.counters["edge.gpu->cpu.bytes"] > 0
    with pytest.raises(UsageError, match="below one chunk"):
        instant(sized.replace("{cpu}", "15MiB"), trace, CHECKED)


@pytest.mark.parametrize("gpu", [20, 35, 50, 64])
def test_the_knee_of_a_small_pool_is_that_of_its_blocks(gpu):
    """Prompts below one chunk: the GPU holds as many sequences as without LMCache."""
    trace = trace_of([[f"{n}.{k}" for k in range(7)] for n in range(12)], 16, [100] * 12, None, [20] * 12)
    text = f"cache: {{semantics: vllm, block_size: 16}}\ntiers: {{gpu: {{capacity: {gpu} blocks}}"
    below = ", cpu: {capacity: 320 blocks, semantics: lmcache, chunk_tokens: 256}"
    runs = [
        simulate(scenario_from_text(made, "s.yaml", Path.cwd(), []).settings, trace)
        for made in (text + "}\n", text + below + "}\n")
    ]
    assert runs[0].requests["queue_ns"].max() > 0 or gpu == 64
    for name in ("first_token_ns", "finish_ns"):
        assert runs[0].requests[name].tolist() == runs[1].requests[name].tolist()


def spread(trace):
    """Every copy ends before the next request, as in the replays."""
    return replace(trace, arrival_ns=trace.arrival_ns.cumsum() * 10**9)


def within_limit(trace) -> int:
    return -(-int((trace.input_tokens + trace.output_tokens - 1).max()) // 4)


@given(tree_traces(4, 15), st.integers(0, 12), st.integers(1, 40), st.sampled_from(POLICIES))
@examples(8)
def test_an_instant_run_with_a_cpu_gives_the_replays_integers(trace, spare, cpu, policy):
    """Without a disk LMCache decides as it would alone, and so does vLLM's pool."""
    gpu, trace = within_limit(trace) + spare, spread(trace)
    done = instant(scenario(gpu, cpu, 0, policy), trace, CHECKED)
    alone = ReplayRequest(trace, 4, cpu)
    below = _core.replay_lmcache(native_requests(alone), policy, cpu, 0)
    in_pool = native_requests(replace(alone, outputs="computed", capacity_blocks=gpu)).vllm(gpu)
    loaded = [max(0, hit - pool) for hit, pool in zip(below["hits"], in_pool["hits"], strict=True)]
    requests, moved = done.run.requests, done.run.counters
    assert requests["cached_gpu_tokens"].tolist() == in_pool["hits"].tolist()
    assert requests["cached_cpu_tokens"].tolist() == loaded
    assert moved.get("edge.cpu->gpu.bytes", 0) == sum(loaded) // 4 * BLOCK_BYTES
    assert moved.get("edge.gpu->cpu.bytes", 0) == below["stored"] * BLOCK_BYTES
    evicted = done.summary["cache"]["evictions"]
    assert (evicted["gpu"], evicted["cpu"]) == (in_pool["evicted"], below["cpu_evictions"])


class Lists:
    """LMCache's tiers below a pool by lists: what is loaded is only what the pool does not have."""

    def __init__(self, cpu: int, disk: int) -> None:
        self.cpu, self.disk, self.most, self.lost = list[int](), list[int](), (cpu, disk), [0, 0]
        self.reads = self.loads = self.stores = self.disk_stores = 0

    def take(self, units: int, pinned: list[int]) -> int:
        for taken in range(units):
            if len(self.cpu) + taken == self.most[0]:
                victim = next((key for key in self.cpu if key not in pinned), None)
                if victim is None:
                    return taken
                self.cpu.remove(victim)
                self.lost[0] += 1
        return units

    def request(self, keys: list[int], in_pool: int) -> int:
        """Serve a prompt; return the chunks that the look-up found."""
        on_cpu = list(takewhile(self.cpu.__contains__, keys))
        on_disk = list(takewhile(self.disk.__contains__, keys[len(on_cpu) :]))[: self.most[0] - len(on_cpu)]
        for here, found in ((self.cpu, on_cpu), (self.disk, on_disk)):
            for key in reversed(found):
                here.remove(key)
                here.append(key)
        below = len(on_cpu) + len(on_disk)
        read = keys[max(in_pool, len(on_cpu)) : below]
        assert self.take(len(read), on_cpu) == len(read)
        for key in read:
            self.disk.remove(key)
            self.disk.append(key)
        self.cpu += [key for key in read if key not in self.cpu]
        self.reads, self.loads = self.reads + len(read), self.loads + max(0, below - in_pool)
        new = keys[below:]
        new = new[: self.take(len(new), [])]
        self.stores += len(new)
        self.cpu += [key for key in new if key not in self.cpu]
        for key in new:
            if key in self.disk:
                self.disk.remove(key)
            else:
                self.disk_stores += 1
                if len(self.disk) == self.most[1]:
                    self.disk.pop(0)
                    self.lost[1] += 1
            self.disk.append(key)
        return below


@given(tree_traces(4, 15), st.integers(0, 12), st.integers(1, 30), st.integers(1, 60))
@examples(8)
def test_an_instant_run_with_a_disk_is_lists(trace, spare, cpu, disk):
    gpu, trace = within_limit(trace) + spare, spread(trace)
    done = instant(scenario(gpu, cpu, disk, "lru"), trace, CHECKED)
    request = ReplayRequest(trace, 4, gpu, outputs="computed")
    in_pool, keys = native_requests(request).vllm(gpu)["hits"].tolist(), block_keys(request)
    lists = Lists(cpu, disk)
    for number, hits in enumerate(in_pool):
        lists.request(keys.keys(number, int(trace.input_tokens[number]) // 4), hits // 4)
    moved, evicted = done.run.counters, done.summary["cache"]["evictions"]
    counted = {"cpu->gpu": lists.loads, "disk->cpu": lists.reads, "gpu->cpu": lists.stores}
    counted["cpu->disk"] = lists.disk_stores
    assert {edge: moved.get(f"edge.{edge}.bytes", 0) // BLOCK_BYTES for edge in counted} == counted
    assert [evicted["cpu"], evicted["disk"]] == lists.lost
