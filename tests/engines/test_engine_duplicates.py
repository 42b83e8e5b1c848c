"""``replica.duplicate_prefill: wait`` over engines' own caches: a request with the same prompt waits for
it, once."""

from pathlib import Path

import pytest
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import RunOptions, simulate
from support.small_traces import trace_of

#: Settings of a machine that holds all blocks, by cache.
CACHES = {
    "vllm": "cache: {semantics: vllm, block_size: 16}\ntiers: {gpu: {capacity: 900 blocks}}\n",
    "sglang": "cache: {semantics: sglang, block_size: 16}\ntiers: {gpu: {capacity: 900 blocks}}\n",
    "hicache": "cache: {block_size: 16}\n"
    "tiers: {gpu: {capacity: 900 blocks}, cpu: {capacity: 900 blocks, semantics: hicache}}\n",
    "lmcache": "cache: {block_size: 16}\n"
    "tiers: {gpu: {capacity: 900 blocks}, cpu: {capacity: 900 blocks, semantics: lmcache}}\n",
    "groups": "model: gpt-oss-20b\ncache: {semantics: vllm, block_size: 16}\n"
    "tiers: {gpu: {capacity: 900 blocks}}\n",
    "tree of groups": "model: gpt-oss-20b\ncache: {layer_groups: by-kind, block_size: 16}\n"
    "tiers: {gpu: {capacity: 900 blocks}}\n",
    "tree of groups over a tier": "model: gpt-oss-20b\ncache: {layer_groups: by-kind, block_size: 16}\n"
    "tiers: {gpu: {capacity: 900 blocks}, cpu: {capacity: 900 blocks}}\n",
}


@pytest.mark.parametrize("cache", CACHES)
def test_who_comes_with_the_same_prompt_waits_for_its_blocks(cache):
    """Three prompts of 20 blocks and a token at once, two alike: the second is computed once its first is."""
    rows = [[f"{name}{k}" for k in range(21)] for name in "aab"]
    trace = trace_of(rows, 16, [321] * 3, None, [4] * 3)
    text, runs = CACHES[cache] + "replica: {max_num_batched_tokens: 2048}\n", {}
    for rule in ("recompute", "wait"):
        settings = scenario_from_text(
            text, "s.yaml", Path.cwd(), [f"replica.duplicate_prefill={rule}"]
        ).settings
        runs[rule] = simulate(settings, trace, options=RunOptions(check="full")).requests
    waits, computes = (runs[rule]["cached_prefix_length_used"].tolist() for rule in ("wait", "recompute"))
    assert waits == [0, 320, 0]
    # vLLM's blocks have their keys as soon as they are scheduled
    assert computes == ([0, 320, 0] if cache in ("vllm", "lmcache", "groups") else [0, 0, 0])
    assert runs["wait"]["first_token_ns"][2] <= runs["recompute"]["first_token_ns"][2]
