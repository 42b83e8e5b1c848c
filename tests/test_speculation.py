"""Speculative decoding: one story on every path, closed forms, and nothing where nothing is accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.errors import KvsimError
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.speculation import summarize_speculation
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.speculation import SpeculationRules, SpeculationSettings
from kvcache_sim.simulation import RunOptions, simulate
from small_traces import trace_of
from support.clusters import cluster, table
from support.drawn_settings import replicas
from support.recorded import recorded
from support.traces import random_trace

BASE = """
workload: {kind: conversational, requests: 20}
replica: {speculation: {tokens: 3, acceptance: [0.8, 0.6, 0.4]}}
"""


def drafting(settings, speculation, **replica):
    machines = (
        replace(m, step_time=table(4096, 300), replica=replace(m.replica, speculation=speculation, **replica))
        for m in settings.machines
    )
    return replace(settings, machines=tuple(machines))


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


@examples(40)
@given(
    drafted=drafts,
    replica=replicas,
    semantics=st.sampled_from(["tree", "vllm", "sglang"]),
    shape=st.sampled_from([(110,), (400,), (90, 200)]),
    machines=st.sampled_from([1, 2]),
    seed=st.integers(1, 9),
)
def test_the_core_single_steps_and_the_reference_tell_one_story(
    drafted, replica, semantics, shape, machines, seed
):
    settings = cluster(shape, machines)
    if len(shape) == 1:
        settings = replace(settings, cache=replace(settings.cache, semantics=semantics))
    changed = replace(replica, async_scheduling="none")
    settings = drafting(
        replace(settings, machines=tuple(replace(m, replica=changed) for m in settings.machines)), drafted
    )
    trace = random_trace(seed, requests=40, sessions=7)
    simulation, native = recorded(settings, trace)
    assert all(isinstance(r, NativeReplica) for r in simulation.replicas)
    _, plain = recorded(settings, trace, step_every_iteration=True)
    assert native == plain
    reference = simulate(settings, trace, options=RunOptions(backend="python", check="full"))
    assert reference.digest_results == native["digests"][1]
    assert simulate(settings, trace).digest_results == native["digests"][1]


def test_without_accepted_tokens_every_request_gets_what_it_got_without_drafts():
    """A draft takes room, so preemptions may differ; nobody's tokens do."""
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
    rules = SpeculationRules.of(SpeculationSettings((0.8, 0.6, 0.4), key=7))
    drawn = np.array([rules.accepted(r, c, 3) for r in range(100) for c in range(300)])
    for position, rate in enumerate((0.8, 0.6, 0.4)):
        assert (drawn > position).mean() == pytest.approx(rate, abs=0.01)
    # Neither one request's draws nor those of one position repeat one another.
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn[:-300], drawn[300:])[0, 1]) < 0.02
    assert rules.accepted(0, 0, 1) <= 1


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


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("acceptance=[0.5, 0.6, 0.4]", "3 shares from 1 to 0, none above the one before"),
        ("acceptance=[0.5]", "3 shares from 1 to 0"),
        ("acceptance=null", "got neither"),
        ("mean_length=2", "got both"),
        ("tokens=0", "greater than or equal to 1"),
    ],
)
def test_what_is_no_acceptance_is_one_line(override, words):
    with pytest.raises(KvsimError) as refused:
        scenario_from_text(BASE, "s.yaml", Path.cwd(), [f"replica.speculation.{override}"])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_mean_beyond_what_a_step_brings_is_one_line():
    override = "replica.speculation={tokens: 2, mean_length: 3.5}"
    with pytest.raises(KvsimError, match="more than a step can bring"):
        scenario_from_text(BASE, "s.yaml", Path.cwd(), [override])


@pytest.mark.parametrize("blocks", [22, 23])
@pytest.mark.parametrize("backend", ["native", "python"])
@pytest.mark.parametrize("semantics", ["tree", "vllm"])
def test_a_request_without_room_for_its_drafts_is_rejected(semantics, backend, blocks):
    """Prompt and answer are 22 blocks to the token; five drafts behind them need one more."""
    trace = trace_of([[f"a{k}" for k in range(20)]], 16, [320], None, [33])
    settings = cluster((blocks,))
    cache = replace(settings.cache, block_size_tokens=16, semantics=semantics)
    drafted = drafting(replace(settings, cache=cache), SpeculationSettings((0.5,) * 5))
    run = simulate(drafted, trace, options=RunOptions(backend=backend))
    assert run.requests["status"].tolist() == [STATUSES.index("finished" if blocks > 22 else "rejected")]
