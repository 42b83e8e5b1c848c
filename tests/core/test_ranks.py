"""Data-parallel ranks: in lock step with the slowest, one rank as no ranks, balanced as vLLM's
coordinator."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.membership.plan import MembershipEvent, MembershipPlan
from kvcache_sim.serving.settings import ReplicaSettings, RouterSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import cluster, table
from support.drawn_settings import engines, replicas, trees
from support.examples import examples
from support.product.models import SharedTime
from support.recorded import recorded
from support.schedule_book import plain_table
from support.small_traces import trace_of
from support.traces import random_trace, with_aborts

BASE = """
workload: {kind: conversational, requests: 20}
replica: {dp: 4}
"""


#: A step of one token on a rank without requests.
DUMMY = table().step(StepBatch((), 1, 0, 0))


def in_step(settings, size):
    machines = (replace(m, replica=replace(m.replica, ranks=size)) for m in settings.machines)
    return replace(settings, machines=tuple(machines), router=RouterSettings("vllm-dp"))


def alone(new, past=0):
    """Return the time of a step of one prompt chunk."""
    return table().step(StepBatch(((new, past),), 0, 0, 0))


def decode(length):
    return table().step(StepBatch((), 1, length, length))


def test_two_ranks_step_as_long_as_the_longer_one():
    """Two prompts at once on two ranks, of 64 and of 512 tokens, three tokens each: every step is the
    longer's."""
    trace = trace_of([[*range(4)], [*range(10, 42)]], 16, [64, 512], [0, 0], [3, 3])
    run = simulate(in_step(cluster((400,), 2), 2), trace)
    assert sorted(run.requests["machine"].tolist()) == [0, 1]
    first = alone(512)
    second = first + decode(512)
    third = second + decode(513)
    assert run.requests["first_token_ns"].tolist() == [first, first]
    assert run.requests["finish_ns"].tolist() == [third, third]
    apart = simulate(replace(cluster((400,), 2), router=RouterSettings("vllm-dp")), trace)
    assert sorted(apart.requests["first_token_ns"].tolist()) == [alone(64), alone(512)]


def test_a_request_that_comes_in_a_step_waits_for_its_end_on_an_idle_rank_too():
    """The second rank has nothing; its request comes 1 ms into the first one's step."""
    trace = trace_of([[*range(32)], [*range(40, 42)]], 16, [512, 32], [0, 1_000_000], [1, 1])
    run = simulate(in_step(cluster((400,), 2), 2), trace)
    assert run.requests["machine"].tolist() == [0, 1]
    assert run.requests["first_token_ns"].tolist() == [alone(512), alone(512) + max(alone(32), DUMMY)]


def test_shared_work_counts_the_tokens_of_all_ranks():
    """Prompts of 512 and of 64 tokens at once: 576 tokens, not twice 512; then two decodes, padded to one each."""
    shared = SharedTime(2, np.array([0, 700_000, 900_000]), np.arange(2 * 4096 + 1) * 1_000)
    even = table().base_ns + shared.even(4097), table().decode_base_ns + shared.even(65)
    past = table().past_base_ns + shared.even(4097)
    whole = replace(table(), base_ns=even[0], decode_base_ns=even[1], past_base_ns=past, shared=shared)
    settings = in_step(cluster((400,), 2), 2)
    settings = replace(settings, machines=tuple(replace(m, step_time=whole) for m in settings.machines))
    trace = trace_of([[*range(4)], [*range(10, 42)]], 16, [64, 512], [0, 0], [2, 2])
    run = simulate(settings, trace)
    first = alone(512) + 576_000
    assert run.requests["first_token_ns"].tolist() == [first, first]
    assert run.requests["finish_ns"].tolist() == [first + decode(512) + 700_000] * 2
    assert whole.step(StepBatch(((512, 0),))) == alone(512) + 2 * 512_000
    assert whole.own_part().step(StepBatch(((512, 0),))) == alone(512)
    four = replace(settings, machines=settings.machines * 2)
    with pytest.raises(UsageError, match="another number of ranks"):
        simulate(in_step(four, 4), trace)


def twice(trace):
    """Return a trace with every request twice, each of a pair in a session of its own."""
    pairs = np.repeat(np.arange(len(trace)), 2)
    offsets = trace.id_offsets
    ids = [trace.block_ids[offsets[row] : offsets[row + 1]] for row in pairs]
    names = ("arrival_ns", "input_tokens", "output_tokens", "turn", "think_ns", "is_conversational_turn")
    columns = {name: getattr(trace, name)[pairs] for name in (*names, "abort_after_ns", "priority")}
    odd = np.arange(len(pairs)) % 2
    session = np.where(trace.session[pairs] < 0, -1, 2 * trace.session[pairs] + odd).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum([len(own) for own in ids])])
    return replace(trace, **columns, session=session, id_offsets=ends, block_ids=np.concatenate(ids))


#: What a request is, and what became of it but for where.
SAME = """
    status first_token_ns finish_ns cached_prefix_length_used preemptions recomputed_tokens
""".split()


@examples(40)
@given(
    replica=replicas,
    cache=st.one_of(trees, trees, engines),
    blocks=st.sampled_from([70, 110, 400]),
    share=st.sampled_from([0.0, 0.0, 0.5]),
    seed=st.integers(1, 99),
)
def test_two_ranks_with_the_same_requests_are_each_as_one_machine(replica, cache, blocks, share, seed):
    """Their steps are the same, so neither waits: arrivals in a step, refusals, preemption, clients that
    leave."""
    trace = with_aborts(seed, share=share)
    one = replace(cluster((blocks,)), cache=cache)
    one = replace(one, machines=tuple(replace(machine, replica=replica) for machine in one.machines))
    two = replace(cluster((blocks,), 2), cache=cache)
    two = replace(two, machines=tuple(replace(machine, replica=replica) for machine in two.machines))
    two = replace(in_step(two, 2), router=RouterSettings("round-robin"))
    alone = simulate(one, trace, options=RunOptions(check="full")).requests
    paired = simulate(two, twice(trace), options=RunOptions(check="full")).requests
    assert paired["machine"].tolist() == [0, 1] * len(trace)
    for name in SAME:
        for rank in (0, 1):
            assert paired[name][rank::2].tolist() == alone[name].tolist(), name


@examples(20)
@given(blocks=st.sampled_from([70, 110, 400]), seed=st.integers(1, 99), most=st.sampled_from([64, 512]))
def test_with_an_idle_rank_every_step_takes_at_least_a_dummy_step(blocks, seed, most):
    """Of each pair the second is longer than its rank could ever hold."""
    trace = with_aborts(seed, share=0.0)
    pairs = twice(trace)
    pairs.output_tokens[1::2] = 10**6
    table, dummy = plain_table(), plain_table().step(StepBatch((), 1, 0, 0))
    slower = replace(table, base_ns=np.where(table.base_ns > 0, np.maximum(table.base_ns, dummy), 0))
    assert (slower.base_ns > table.base_ns).any()

    def on(settings, times):
        replica = ReplicaSettings(most, 8)
        machines = tuple(replace(m, replica=replica, step_time=times) for m in settings.machines)
        return replace(settings, machines=machines, router=RouterSettings("round-robin"))

    alone = simulate(on(cluster((blocks,)), slower), trace).requests
    two = in_step(on(cluster((blocks,), 2), table), 2)
    alongside = simulate(replace(two, router=RouterSettings("round-robin")), pairs).requests
    for name in SAME:
        assert alongside[name][::2].tolist() == alone[name].tolist(), name


@examples(40)
@given(
    replica=replicas,
    cache=st.one_of(trees, trees, engines),
    blocks=st.sampled_from([70, 110, 400]),
    ranks=st.sampled_from([(2, 1), (3, 1), (2, 2)]),
    router=st.sampled_from(["vllm-dp", "vllm-dp-waiting", "round-robin", "least-loaded", "longest-prefix"]),
    share=st.sampled_from([0.0, 0.0, 0.5]),
    closed_loop=st.booleans(),
    seed=st.integers(1, 99),
)
def test_ranks_begin_a_step_together_and_end_it_with_the_slowest(
    replica, cache, blocks, ranks, router, share, closed_loop, seed
):
    """By the recorded steps of each engine: none begins within another, and tokens come at the ends of the
    slowest."""
    size, of = ranks
    settings = replace(cluster((blocks,), size * of), cache=cache)
    built = tuple(replace(machine, replica=replica) for machine in settings.machines)
    settings = replace(in_step(replace(settings, machines=built), size), router=RouterSettings(router))
    trace = with_aborts(seed, share=share, closed_loop=closed_loop)
    _, tables = recorded(settings, trace)
    lookahead = simulate(settings, trace)
    assert [
        lookahead.digest_events,
        lookahead.digest_results,
        lookahead.counters,
        lookahead.end_ns,
    ] == tables["digests"]
    overhead = 0 if replica.async_scheduling != "none" else replica.step_overhead_ns
    dummy = DUMMY + overhead
    columns = ("kind", "machine", "time_ns", "duration_ns")
    steps = [
        row[1:] for row in zip(*(tables["events", name] for name in columns), strict=True) if row[0] == "step"
    ]
    names = ("machine", "status", "first_token_ns", "finish_ns")
    rows = list(zip(*(tables["requests", name] for name in names), strict=True))
    for engine in range(of):
        began: dict[int, list[int]] = {}
        for machine, begin, duration in steps:
            if machine // size == engine:
                began.setdefault(begin, []).append(duration)
        ends = {
            begin: begin + max(*durations, dummy if len(durations) < size else 0)
            for begin, durations in sorted(began.items())
        }
        assert all(end <= begin for end, begin in zip(ends.values(), [*ends][1:], strict=False))
        for machine, status, first, last in rows:
            if machine // size == engine and status == 0:
                assert {first, last} <= set(ends.values())


def test_a_scenario_has_a_machine_a_rank_and_the_engines_balancer():
    scenario = scenario_from_text(BASE, "s.yaml", Path.cwd())
    assert len(scenario.settings.machines) == 4
    assert scenario.settings.router.policy == "vllm-dp"
    assert {machine.replica.ranks for machine in scenario.settings.machines} == {4}
    again = scenario_from_text(BASE, "s.yaml", Path.cwd(), ["cluster.machines=8", "router.policy=random"])
    assert len(again.settings.machines) == 8
    assert again.settings.router.policy == "random"


def test_from_python_an_engine_has_all_its_ranks():
    with pytest.raises(UsageError, match="as many machines as each of them says"):
        simulate(in_step(cluster((400,), 3), 2), random_trace(1))


def test_from_python_no_rank_is_lost_alone():
    lost = MembershipPlan((MembershipEvent(10**9, "lose", 1),))
    with pytest.raises(UsageError, match="of which none can be missing"):
        simulate(replace(in_step(cluster((400,), 2), 2), membership=lost), random_trace(1))
