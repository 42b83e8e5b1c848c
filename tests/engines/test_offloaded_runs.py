"""``tiers.cpu.semantics: vllm-offload``: vLLM's pool with its CPU offloading below, in runs with and without
time."""

from hypothesis import given
from kvcache_sim.simulation import RunOptions
from support.examples import examples
from support.instant_runs import instant
from support.offloaded_groups import SIZES, replayed
from support.small_traces import tree_traces

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
