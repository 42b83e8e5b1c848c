"""Data-parallel ranks: in lock step with the slowest, one rank as no ranks, balanced as vLLM's coordinator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.errors import KvsimError, UsageError
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.membership.plan import MembershipEvent, MembershipPlan
from kvcache_sim.serving.ranks import Ranks
from kvcache_sim.serving.replica.replica import Replica
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from small_traces import trace_of
from support.clusters import cluster, table
from support.drawn_settings import engines, replicas, trees
from support.second_path import told_alike
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
    """What a step of one prompt chunk takes by itself."""
    return table().step(StepBatch(((new, past),), 0, 0, 0))


def decode(length):
    return table().step(StepBatch((), 1, length, length))


def test_two_ranks_step_as_long_as_the_longer_one():
    """Two prompts at once on two ranks, of 64 and of 512 tokens, three tokens each: every step is the longer's."""
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


def test_an_idle_rank_takes_a_dummy_step_at_least():
    trace = trace_of([[1]], 16, [1], [0], [1])
    run = simulate(in_step(cluster((400,), 2), 2), trace)
    assert run.requests["first_token_ns"].tolist() == [max(alone(1), DUMMY)] == [DUMMY]


@examples(25)
@given(replica=replicas, semantics=st.sampled_from(["tree", "vllm", "sglang"]), seed=st.integers(1, 9))
def test_one_rank_is_no_ranks_and_every_store_tells_one_story(replica, semantics, seed):
    trace = random_trace(seed, requests=40, sessions=7)
    settings = cluster((160,))
    built = tuple(replace(machine, replica=replica) for machine in settings.machines)
    cache = replace(settings.cache, semantics=semantics)
    settings = replace(settings, machines=built, cache=cache)
    plain = Simulation(settings, trace, RunOptions(step_every_iteration=True))
    one = Simulation(settings, trace, RunOptions(step_every_iteration=True))
    (rank,) = one.replicas
    assert isinstance(rank, Replica)
    rank.step_with(Ranks([rank], rank.engine, dummy_ns=10**12))
    assert one.run().digest_results == plain.run().digest_results
    four = in_step(replace(settings, machines=built * 4), 2)
    edges = [{edge: f"{name} {m}" for edge, name in built[0].edge_channels.items()} for m in range(4)]
    four = replace(
        four, machines=tuple(replace(m, edge_channels=e) for m, e in zip(four.machines, edges, strict=True))
    )
    options = (RunOptions(check="full"), RunOptions(step_every_iteration=True), RunOptions(backend="python"))
    runs = [simulate(four, trace, options=each) for each in options]
    assert len({run.digest_results for run in runs}) == 1
    # A request is with one rank; ranks of one engine never wait for those of the other.
    assert set(np.unique(runs[0].requests["machine"])) <= {0, 1, 2, 3}


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
def test_the_core_steps_ranks_as_the_scheduler_in_python(
    replica, cache, blocks, ranks, router, share, closed_loop, seed
):
    """Arrivals in the middle of a step, refusals, preemption, clients that leave; every moment and event."""
    size, of = ranks
    settings = replace(cluster((blocks,), size * of), cache=cache)
    built = tuple(replace(machine, replica=replica) for machine in settings.machines)
    settings = replace(in_step(replace(settings, machines=built), size), router=RouterSettings(router))
    told_alike(settings, with_aborts(seed, share=share, closed_loop=closed_loop))


def test_a_scenario_has_a_machine_a_rank_and_the_engines_balancer():
    scenario = scenario_from_text(BASE, "s.yaml", Path.cwd())
    assert len(scenario.settings.machines) == 4
    assert scenario.settings.router.policy == "vllm-dp"
    assert {machine.replica.ranks for machine in scenario.settings.machines} == {4}
    again = scenario_from_text(BASE, "s.yaml", Path.cwd(), ["cluster.machines=8", "router.policy=random"])
    assert len(again.settings.machines) == 8
    assert again.settings.router.policy == "random"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("cluster.machines=6", "a multiple of replica.dp, 4"),
        ("tiers.cpu.capacity=4GiB", "no lower tiers"),
        ("pools={prefill: 2, decode: 2}", "hand nothing over"),
        ("replica.scheduler=vllm", "under kvsim's own scheduler"),
        ("machines=[{replica: {dp: 2}}]", "for all machines or for none"),
        ("fleet.plan=[{at: 1s, do: lose, machine: 1}]", "of which none can be missing"),
        ("fleet.plan=[{at: 1s, do: drain, machine: 1}, {at: 2s, do: join}]", "of which none can be missing"),
        ("fleet.scaling={policy: queue, most: 8}", "of which none can be missing"),
    ],
)
def test_what_ranks_cannot_have_is_one_line(override, words):
    with pytest.raises(KvsimError) as refused:
        scenario_from_text(BASE, "s.yaml", Path.cwd(), [override])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_from_python_an_engine_has_all_its_ranks():
    with pytest.raises(UsageError, match="as many machines as each of them says"):
        simulate(in_step(cluster((400,), 3), 2), random_trace(1))


def test_from_python_no_rank_is_lost_alone():
    lost = MembershipPlan((MembershipEvent(10**9, "lose", 1),))
    with pytest.raises(UsageError, match="of which none can be missing"):
        simulate(replace(in_step(cluster((400,), 2), 2), membership=lost), random_trace(1))
