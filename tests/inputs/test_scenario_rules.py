"""Rules of scenarios on values made by hand: a GPU's memory, the context of a machine, and its requests."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import EngineMemory, default_engine
from kvcache_sim.scenario import gpu_memory, lowering, requests
from kvcache_sim.scenario.machine_sections import ReplicaSection
from kvcache_sim.scenario.quantities import AUTO_CONTEXT
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.workload.trace import NO_SESSION
from support.examples import examples
from support.small_traces import trace_of


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [({}, {}, [False] * 3), ({"max_num_batched_tokens": 9}, {}, [True] * 3), ({}, {"max_num_batched_tokens": 9}, [False, False, True])],
)  # fmt: skip
def test_a_token_budget_is_given_for_all_machines_or_for_one(own, other, expected):
    tree = Tree({"replica": own, "machines": [{"replica": None}, {"replica": other}]})
    assert [gpu_memory.gives_tokens(tree, machine) for machine in (None, 0, 1)] == expected


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("is_instant", [True, False])
@pytest.mark.parametrize("seqs", [ReplicaSection().max_num_seqs, 77])
def test_an_engine_warms_up_with_what_is_given_or_usual(is_given, is_instant, seqs):
    gpu = load_gpu("h100")
    usual = default_engine(gpu, "0.8.0")
    replica = ReplicaSection(
        instant=is_instant, max_num_batched_tokens=1234, max_num_seqs=seqs, gpu_memory_utilization=0.5,
        vllm_release="0.8.0",
    )  # fmt: skip
    tokens = 1234 if is_given and not is_instant else usual.max_num_batched_tokens
    own_seqs = 77 if seqs == 77 else usual.max_num_seqs
    assert gpu_memory._engine(replica, gpu, is_given) == EngineMemory(0.5, tokens, own_seqs, replica.sampler, usual.source)  # fmt: skip


@examples(80)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 300))
def test_the_longest_sequence_of_some_blocks(blocks, size, most):
    assert gpu_memory._longest(lambda tokens: -(-tokens // size), blocks, most) == min(blocks * size, most)


@pytest.mark.parametrize(
    ("asked", "longest", "fits", "tokens"),
    [
        ({}, 160, 50, 100),
        ({"max_model_len": 160}, 160, 50, 160),
        ({"max_model_len": 161}, 160, 50, None),
        ({"max_model_len": 161, "allow_long_max_model_len": True}, 160, 50, 161),
        ({"max_model_len": 999}, None, 50, 999),
        ({"max_model_len": AUTO_CONTEXT}, 160, 50, 50),
        ({"max_model_len": AUTO_CONTEXT}, 160, 500, 100),
        ({"max_model_len": AUTO_CONTEXT}, 160, 1, 2),
        ({"instant": True}, 160, 50, "as given"),
        ({"instant": True, "max_model_len": 12}, 160, 50, 12),
    ],
)
def test_the_context_of_a_machine(monkeypatch, asked, longest, fits, tokens):
    context = SimpleNamespace(default_tokens=100, longest_tokens=longest)
    monkeypatch.setattr(gpu_memory, "served_model", lambda model: SimpleNamespace(name="m", context=context))
    monkeypatch.setattr(gpu_memory, "_fits", lambda machine, model: fits)
    machine = MachineSection(replica=ReplicaSection(**asked))

    def found(accounting="exact"):
        model = SimpleNamespace(cache=SimpleNamespace(accounting=accounting))
        return gpu_memory.with_context_length(machine, model, Tree(), ("replica",)).replica.max_model_len

    if tokens is None:
        with pytest.raises(UsageError, match=r"longer than the context of m; got 161 tokens; .*at most 160"):
            found()
        return
    assert found() == (None if tokens == "as given" else tokens)
    if not asked:
        assert found("simplified") is None


@pytest.mark.parametrize(
    ("asked", "blocks", "accounting", "most"),
    [
        ({"max_model_len": 64}, 4, "exact", None),
        ({"max_model_len": 65}, 4, "exact", 64),
        ({"max_model_len": 65}, 4, "simplified", None),
        ({"max_model_len": 65, "instant": True}, 4, "exact", None),
        ({"max_model_len": 65, "scheduler": "sglang"}, 4, "exact", None),
        ({"max_model_len": 65}, None, "exact", None),
        ({}, 4, "exact", None),
    ],
)
def test_a_gpu_holds_a_request_of_the_context(monkeypatch, asked, blocks, accounting, most):
    monkeypatch.setattr(gpu_memory, "cache_groups", lambda model: None)
    monkeypatch.setattr(gpu_memory, "block_bytes", lambda model: 1 << 29)
    model = SimpleNamespace(cache=SimpleNamespace(accounting=accounting, block_size=16))
    compute = SimpleNamespace(capacity=SimpleNamespace(blocks=blocks, size_bytes=None))
    machine = SimpleNamespace(replica=ReplicaSection(**asked), tiers=SimpleNamespace(compute=compute))
    if most is None:
        gpu_memory.refuse_small_gpu(machine, model, Tree(), ("replica",))
        return
    with pytest.raises(UsageError) as refused:
        gpu_memory.refuse_small_gpu(machine, model, Tree(), ("replica",))
    assert refused.value.got == "65 tokens, which need 5 blocks (2.5 GiB), and 4 blocks (2 GiB) there"
    assert refused.value.expected == f"at most {most} tokens"


def test_machines_share_step_times_that_are_alike_in_all_that_is_added(monkeypatch):
    monkeypatch.setattr(lowering, "_sequence_ns", lambda replica: replica.max_num_seqs)
    monkeypatch.setattr(lowering, "_named", lambda model, machine: model)
    monkeypatch.setattr(lowering, "_sampler", lambda replica: replica.scheduler)

    def kind(launch_ns=0, model="m", **own):
        return lowering._step_time_kind(ReplicaSection(**own), launch_ns, model, 0)

    roofline = {"step_time": "roofline:llama-3-8b@h100"}
    apart = [
        kind(), kind(links="a"), kind(links="b"), kind(5), kind(max_num_seqs=7), kind(**roofline), kind(**roofline, model="o"),
        kind(**roofline, scheduler="sglang"), kind(**roofline, sustained_clocks=not ReplicaSection().sustained_clocks),
        kind(instant=True), kind(instant=True, max_num_seqs=7), kind(instant=True, max_num_batched_tokens=9),
    ]  # fmt: skip
    assert len(set(apart)) == len(apart)
    assert kind() == kind(model="o") == kind(max_num_batched_tokens=9)
    assert kind(instant=True) == kind(5, instant=True, links="a")


# --- requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "context", "said"),
    [
        ((4, 9), None, "2 of 4 requests need more blocks than the smallest gpu has (4): they are rejected there; the longest needs 6"),
        ((None, 5), None, "1 of 4 requests need more blocks than the smallest gpu has (5): they are rejected there; the longest needs 6"),
        ((4,), 90, "1 of 4 requests need more blocks than the smallest gpu has (4): they are rejected there; the longest needs 5"),
        ((6,), None, None), ((None,), None, None), ((4,), 65, None), ((), None, None),
    ],
)  # fmt: skip
def test_prompts_within_the_context_that_no_gpu_holds_are_counted(monkeypatch, sizes, context, said):
    machines = [SimpleNamespace(tiers=[SimpleNamespace(capacity_blocks=size), None]) for size in sizes]
    scenario = SimpleNamespace(
        settings=SimpleNamespace(machines=machines),
        model=SimpleNamespace(cache=SimpleNamespace(block_size=16)),
    )
    monkeypatch.setattr(requests, "context_tokens", lambda settings, trace: context)
    trace = trace_of([["a"]] * 4, 16, [10, 64, 65, 90])
    assert requests._too_long(scenario, trace) == (() if said is None else (said,))
    assert requests._too_long(scenario, trace_of([], 16)) == ()


def test_requests_meet_the_settings_of_their_scenario():
    """The answers are the scenario's, programs are in order of their starts, and blocks divide the trace's."""
    trace = trace_of([["a"], ["b"], ["c"]], 48, None, [30, 10, 30])

    def model(**more):
        return SimpleNamespace(model=ScenarioModel(**more), tree=Tree())

    assert requests._by_program(trace).priority.tolist() == [1, 0, 1]
    for size, divides in ((16, True), (48, True), (24, True), (32, False), (96, False)):
        section = SimpleNamespace(model=SimpleNamespace(cache=SimpleNamespace(block_size=size)), tree=Tree())
        if divides:
            requests._check_block_size(section, trace)
            continue
        with pytest.raises(UsageError, match=f"got {size}; expected a divisor of 48"):
            requests._check_block_size(section, trace)
    by_session = SimpleNamespace(
        model=SimpleNamespace(router=SimpleNamespace(policy="session-affinity")), tree=Tree()
    )
    assert len(requests._no_sessions(by_session, trace)) == 1
    by_session.model.router.policy = "least-loaded"
    assert requests._no_sessions(by_session, trace) == ()
    by_session.model.router.policy = "session-affinity"
    trace.session[1] = NO_SESSION + 1
    assert requests._no_sessions(by_session, trace) == ()
    assert requests.keeps_unknown(model()) is False
    assert np.array_equal(trace.session, [NO_SESSION, NO_SESSION + 1, NO_SESSION])
