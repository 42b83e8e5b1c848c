"""The core's replays of every eviction policy against the small models of ``support/eviction_orders.py``."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.replay.prefix import prefix_answer
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.trace import Trace
from order_replay import replay
from policy_variants import VARIANTS
from support.examples import examples
from support.small_traces import trace_of, tree_traces


def takes_outputs(request: ReplayRequest) -> ReplayRequest:
    """Return the request with whole blocks alone if outputs take blocks."""
    return request if request.outputs == "prompt" else replace(request, last_partial="drop")


replays = st.builds(
    ReplayRequest,
    trace=tree_traces(),
    block_size_tokens=st.sampled_from([1, 2, 4]),
    capacity_blocks=st.integers(1, 60),
    last_partial=st.sampled_from(["drop", "keep"]),
    outputs=st.sampled_from(["prompt", "computed", "all"]),
    window=st.just(0) | st.integers(1, 9),
).map(takes_outputs)


def facts(answer):
    return answer.hits.tolist(), answer.evictions, answer.expired, answer.resident


def missed(answer) -> Counter[tuple[int, int]]:
    """Return how many blocks each request missed, by the request that evicted them."""
    blocks: Counter[tuple[int, int]] = Counter()
    for request, evicted_by, count in answer.missed.reshape(-1, 3).tolist():
        blocks[request, evicted_by] += count
    return blocks


@pytest.mark.parametrize("variant", VARIANTS)
@examples(12)
@given(request=replays)
def test_leaves_first_equals_the_model(variant, request):
    request = replace(request, explain=True)
    prompts, size = blocks_of_prompts(request), request.block_size_tokens
    policy = replace(parse_variant(variant, size), names=prompts.names)
    model = replay(prompts, policy, request.capacity_blocks, "leaf-first", request.window)
    answer = prefix_answer(request, prompts, policy)
    assert facts(answer) == facts(model)
    assert missed(answer) == missed(model)


@pytest.mark.parametrize("variant", VARIANTS)
@examples(8)
@given(request=replays, touch_from=st.sampled_from(["tail", "root", "queue"]))
def test_a_flat_cache_equals_the_model(variant, request, touch_from):
    prompts, size = blocks_of_prompts(request), request.block_size_tokens
    policy = replace(parse_variant(variant, size), names=prompts.names)
    capacity, window = request.capacity_blocks, min(request.window, max(1, len(request.trace)))
    model = replay(prompts, policy, capacity, touch_from, window)
    answer = prompts.native.plain(policy.name, capacity, touch_from, policy.native, window)
    assert facts(answer) == facts(model)


def long_stream(seed: int) -> Trace:
    """Return 800 prompts of one or two blocks: a few are frequent, what else is common drifts, scans come between."""
    draw = np.random.default_rng(seed)
    rows: list[list[object]] = []
    for step in range(800):
        kind = draw.random()
        common = (step // 40 + int(draw.integers(12))) % 60
        head = int(draw.zipf(1.6)) % 15 if kind < 0.45 else 100 + common if kind < 0.85 else 1000 + step
        rows.append([head] if draw.random() < 0.5 else [head, f"{head} {int(draw.integers(3))}"])
    return trace_of(rows, arrival_ns=list(range(len(rows))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("variant", VARIANTS)
def test_long_streams_equal_the_model(variant, seed):
    """Long enough for ghosts, sketches and segments to matter."""
    request = ReplayRequest(long_stream(seed), 4, 12 + 15 * seed, last_partial="keep")
    prompts = blocks_of_prompts(request)
    policy = replace(parse_variant(variant, 4), names=prompts.names)
    capacity = request.capacity_blocks
    assert facts(prefix_answer(request, prompts, policy)) == facts(
        replay(prompts, policy, capacity, "leaf-first")
    )
    for touch_from in ("tail", "queue"):
        flat = prompts.native.plain(policy.name, capacity, touch_from, policy.native, 0)
        assert facts(flat) == facts(replay(prompts, policy, capacity, touch_from))
