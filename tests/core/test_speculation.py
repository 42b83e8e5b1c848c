"""Speculative decoding: a plain model of requests that come at once, closed forms, nothing accepted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.optional_groups import summarize_speculation
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import cluster, table
from support.drafting import drafting
from support.examples import examples
from support.small_traces import trace_of
from support.traces import random_trace

BASE = """
workload: {kind: conversational, requests: 20}
replica: {speculation: {tokens: 3, acceptance: [0.8, 0.6, 0.4]}}
"""


rates = st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=20).map(
    lambda drawn: tuple(sorted(drawn, reverse=True))
)
drafts = st.builds(
    SpeculationSettings,
    rates=rates,
    draft_ns=st.sampled_from([0, 700_000]),
    loses_last_block=st.booleans(),
    key=st.integers(0, (1 << 64) - 1),
)


MASK = (1 << 64) - 1


def accepted(drafts: SpeculationSettings, request: int, computed: int) -> int:
    """Return how many tokens are accepted: a draw of splitmix64 by request and computed tokens, against the rates."""
    x = drafts.key + (request + 1) * 0x9E37_79B9_7F4A_7C15 + (computed + 1) * 0xD1B5_4A32_D192_ED03 & MASK
    x = (x ^ x >> 30) * 0xBF58_476D_1CE4_E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D0_49BB_1331_11EB & MASK
    x ^= x >> 31
    return sum(x < min(int(rate * (1 << 64)), MASK) for rate in drafts.rates)


def ends_of(drafts: SpeculationSettings, rows: list[tuple[int, int]], times) -> tuple[int, list[int], int]:
    """Serve (prompt, answer) pairs that arrive at once and all fit: the first tokens, the last ones, and the
    steps.

    All prompts are computed in one step. Every later one takes a token and its drafts of each request along,
    and reads its KV once.
    """
    now = first = times.step(StepBatch(tuple((prompt, 0) for prompt, _ in rows), 0, 0, 0))
    left = {request: (prompt, prompt + answer - 1) for request, (prompt, answer) in enumerate(rows)}
    ends, steps = [first] * len(rows), 0
    while left := {
        request: (computed, total) for request, (computed, total) in left.items() if computed < total
    }:
        held = [computed for computed, _ in left.values()]
        now += (
            times.step(StepBatch((), len(held) * (1 + drafts.tokens), sum(held), max(held))) + drafts.draft_ns
        )
        for request, (computed, total) in left.items():
            steps += 1
            left[request] = min(computed + 1 + accepted(drafts, request, computed), total), total
            ends[request] = now
    return first, ends, steps


@pytest.mark.parametrize("kind", ["tree", "vllm", "groups"])
@examples(25)
@given(
    drafts=drafts, rows=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=8)
)
def test_requests_that_come_at_once_end_as_in_a_plain_model(kind, drafts, rows):
    ids = [[f"{request}.{k}" for k in range(-(-prompt // 16))] for request, (prompt, _) in enumerate(rows)]
    trace = trace_of(ids, 16, [prompt for prompt, _ in rows], None, [answer for _, answer in rows])
    settings = drafting(cluster((4000,)), drafts, max_num_batched_tokens=4096, max_num_seqs=8)
    cache = replace(settings.cache, semantics="tree" if kind == "tree" else "vllm")
    if kind == "groups":
        window = KvLayout((KvGroup("full", 16, 0, (0,)), KvGroup("sliding", 16, 48, (1,))), 1, 1)
        cache = replace(cache, groups=GroupSettings("two groups", window, 4096, None))
    run = simulate(replace(settings, cache=cache), trace, options=RunOptions(check="full"))
    first, ends, steps = ends_of(drafts, rows, settings.machines[0].step_time)
    assert run.requests["first_token_ns"].tolist() == [first] * len(rows)
    assert run.requests["finish_ns"].tolist() == ends
    assert summarize_speculation(run.counters)["speculation"]["steps"] == steps


def test_without_accepted_tokens_every_request_gets_what_it_got_without_drafts():
    """Drafts take blocks, so preemptions may differ, but no request's tokens do."""
    trace = random_trace(3)
    none = drafting(cluster((400,)), SpeculationSettings((0.0, 0.0)))
    runs = [simulate(settings, trace) for settings in (drafting(cluster((400,)), None), none)]
    for name in ("output_tokens", "input_tokens", "status"):
        assert (runs[0].requests[name] == runs[1].requests[name]).all()
    figures = summarize_speculation(runs[1].counters)["speculation"]
    assert figures["mean_length"] == 1
    assert figures["drafted_tokens"] == 2 * figures["steps"]
    assert figures["steps"] == sum(np.maximum(trace.output_tokens, 1) - 1)


def test_the_itl_of_a_burst_and_the_time_of_a_token_have_closed_forms():
    """One request of 1 + 3·40 tokens, both of two drafts accepted: 40 bursts of three tokens, a step apart."""
    trace = trace_of([[1]], 16, [16], [0], [121])
    settings = drafting(cluster((400,)), SpeculationSettings((1.0, 1.0), draft_ns=1_000_000))
    run = simulate(settings, trace)
    times = table(4096, 300)
    steps = [times.step(StepBatch((), 3, 16 + 3 * burst, 16 + 3 * burst)) + 1_000_000 for burst in range(40)]
    assert run.itl_ns.counts.sum() == 40
    first, last = int(run.requests["first_token_ns"][0]), int(run.requests["finish_ns"][0])
    assert last - first == sum(steps)
    figures = summarize(run, 16)
    assert figures["latency"]["itl"]["avg"] == pytest.approx(np.mean(steps) / 1e6, rel=0.01)
    assert figures["latency"]["tpot"]["avg"] == pytest.approx(np.mean(steps) / 3 / 1e6, rel=1e-6)
    assert figures["speculation"] == {
        "steps": 40,
        "drafted_tokens": 80,
        "accepted_tokens": 80,
        "acceptance": 1.0,
        "mean_length": 3.0,
        "by_position": [1.0, 1.0],
    }


def test_acceptance_by_position_is_what_was_asked_for():
    drafts = SpeculationSettings((0.8, 0.6, 0.4), key=7)
    drawn = np.array([accepted(drafts, r, c) for r in range(100) for c in range(300)])
    for position, rate in enumerate((0.8, 0.6, 0.4)):
        assert (drawn > position).mean() == pytest.approx(rate, abs=0.01)
    # Neither one request's draws nor those of one position repeat one another.
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[:-300], drawn[300:])[0, 1]) < 0.02
    run = simulate(
        drafting(cluster((400,)), drafts), replace(random_trace(3), output_tokens=np.full(120, 200))
    )
    by_position = summarize_speculation(run.counters)["speculation"]["by_position"]
    assert by_position == pytest.approx([0.8, 0.6, 0.4], abs=0.02)


@pytest.mark.parametrize(("k", "mean"), [(1, 1.0), (1, 1.7), (3, 2.4), (5, 6.0), (8, 3.3)])
def test_a_mean_length_is_the_sum_of_its_acceptance(k, mean):
    override = f"replica.speculation={{tokens: {k}, mean_length: {mean}}}"
    settings = scenario_from_text(BASE, "s.yaml", Path.cwd(), [override]).settings
    speculation = settings.machines[0].replica.speculation
    assert 1 + sum(speculation.rates) == pytest.approx(mean, abs=1e-9)
    assert len(speculation.rates) == k


def test_eagle_loses_the_last_block_of_every_hit():
    trace = trace_of([[1, 2, 3, 4], [1, 2, 3, 5], [9]], 16, [64, 64, 16], [0, 10**10, 2 * 10**10], [2, 2, 2])
    for loses, hit in ((False, 48), (True, 32)):
        settings = drafting(cluster((400,)), SpeculationSettings((0.5,), loses_last_block=loses))
        assert simulate(settings, trace).requests["cached_prefix_length_used"].tolist() == [0, hit, 0]


def test_a_measured_set_has_times_for_the_tokens_of_drafts():
    settings = scenario_from_text(BASE, "s.yaml", Path.cwd()).settings
    replica = settings.machines[0].replica
    assert replica.most_decode_tokens == 4 * replica.max_num_seqs
    assert load_step_time("h100-llama-3-8b-tp1", None).table(8192, replica.most_decode_tokens) is not None


@pytest.mark.parametrize("blocks", [22, 23])
@pytest.mark.parametrize("semantics", ["tree", "vllm"])
def test_a_request_whose_drafts_do_not_fit_is_rejected(semantics, blocks):
    """Prompt and answer are 22 blocks to the token; five drafts behind them need one more."""
    trace = trace_of([[f"a{k}" for k in range(20)]], 16, [320], None, [33])
    settings = cluster((blocks,))
    cache = replace(settings.cache, block_size_tokens=16, semantics=semantics)
    drafted = drafting(replace(settings, cache=cache), SpeculationSettings((0.5,) * 5))
    run = simulate(drafted, trace)
    assert run.requests["status"].tolist() == [STATUSES.index("finished" if blocks > 22 else "rejected")]
