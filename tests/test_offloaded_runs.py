"""``tiers.cpu.semantics: vllm-offload``: vLLM's pool with its CPU offloading below, in runs with and without
time."""

from dataclasses import replace

from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.simulation import RunOptions, simulate
from lower_engine_runs import assert_loads_take_time
from small_traces import tree_traces
from support.clusters import cluster
from support.instant_runs import instant
from support.offloaded_groups import SIZES, replayed
from support.traces import random_trace

CHECKED = RunOptions(check="full")


def scenario(gpu: int, cpu: int, policy: str, chunk_blocks: int, block: int = 4) -> str:
    chunk = f"chunk_tokens: {chunk_blocks * block}" if chunk_blocks > 1 else "chunk_tokens: null"
    tier = f"{{capacity: {cpu} blocks, policy: {policy}, semantics: vllm-offload, {chunk}}}"
    capacity = f"gpu: {{capacity: {gpu} blocks}}, cpu: {tier}"
    return f"cache: {{block_size: {block}}}\ntiers: {{{capacity}}}\n"


@given(tree_traces(4), *SIZES)
@examples(30)
def test_an_instant_run_gives_the_replays_integers(trace, spare, chunks, policy, chunk_blocks):
    cpu = chunks * chunk_blocks
    longest = int((trace.input_tokens + trace.output_tokens - 1).max())
    gpu = -(-longest // 4) + spare
    done = instant(scenario(gpu, cpu, policy, chunk_blocks), trace, CHECKED)
    row = replayed(trace, gpu, cpu, policy, chunk_blocks)
    evicted, moved = done.summary["cache"]["evictions"], done.run.counters
    block_bytes = 4 * 131_072
    assert evicted["gpu"] == row["evictions"]
    assert evicted["cpu"] == row["evicted_chunks"] * chunk_blocks
    assert moved.get("edge.cpu->gpu.bytes", 0) == row["loaded_tokens"] // 4 * block_bytes
    assert moved.get("edge.gpu->cpu.bytes", 0) == row["stored_chunks"] * chunk_blocks * block_bytes
    assert done.run.requests["cached_gpu_tokens"].sum() == row["hit_tokens"]
    assert done.run.requests["cached_cpu_tokens"].sum() == row["loaded_tokens"]


def offloaded(gpu: int, cpu: int, machines: int = 1, policy: str = "lru"):
    settings = cluster((gpu, cpu), machines)
    cache = replace(settings.cache, semantics="vllm", lower_semantics="vllm-offload")
    tiers = (TierSettings("gpu", gpu), TierSettings("cpu", cpu, policy))
    return replace(
        settings, cache=cache, machines=tuple(replace(machine, tiers=tiers) for machine in settings.machines)
    )


@given(st.integers(0, 10_000), st.sampled_from([40, 60, 120]), st.sampled_from([20, 100, 400]))
@examples(5)
def test_timed_runs_keep_every_invariant(seed, gpu, cpu):
    settings, trace = offloaded(gpu, cpu, 1 + seed % 2, ("lru", "arc")[seed % 2]), random_trace(seed, 30, 5)
    run = simulate(settings, trace, options=CHECKED)
    loaded = run.counters.get("edge.cpu->gpu.bytes", 0)
    # a load that several requests wait for uses its channel once
    blocks = int(run.requests["cached_cpu_tokens"].sum()) // settings.cache.block_size_tokens
    assert loaded % settings.cache.block_bytes == 0
    # a preempted request may load again; its row has the hit of its first admission
    assert (blocks > 0) == (loaded > 0) or (loaded and run.requests["preemptions"].any())


def test_it_loads_and_loads_take_the_time_of_their_channel():
    assert_loads_take_time(offloaded(60, 400), random_trace(3, 60, 6), "cpu", "cpu->gpu")
