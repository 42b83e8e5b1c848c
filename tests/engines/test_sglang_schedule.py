"""SGLang's own scheduler: the books of drawn schedules, retraction by hand, and what its settings do.

``tests/engine_oracles/sglang_passes.py`` compares passes over the queue with SGLang's own classes.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.schedule_book import check_books, plain_table, step_time
from support.small_traces import trace_of
from support.tiered_scenario import load
from support.traces import random_trace

replicas = st.builds(
    ReplicaSettings,
    scheduler=st.just("sglang"),
    max_num_batched_tokens=st.sampled_from([100, 256, 512, 2048]),
    max_num_seqs=st.sampled_from([1, 3, 8, 40]),
    schedule_policy=st.sampled_from(["fcfs", "lpm", "dfs-weight", "lof"]),
    max_prefill_tokens=st.sampled_from([150, 700, 16384]),
    enable_mixed_chunk=st.booleans(),
    schedule_conservativeness=st.sampled_from([0.1, 0.3, 1.0, 2.0]),
    step_overhead_ns=st.sampled_from([0, 3_000_000]),
    async_scheduling=st.sampled_from(["none", "length", "stop-token"]),
    client_offset_ns=st.sampled_from([0, 5_000_000]),
)
caches = st.builds(
    CacheSettings,
    block_size_tokens=st.sampled_from([BLOCK, BLOCK // 4, 1]),
    semantics=st.just("sglang"),
    policy=st.sampled_from(["lru", "lru", "lfu", "fifo", "mru", "filo", "slru"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
)


def with_capacity(replica, cache, tokens, machines=1):
    settings = cluster((tokens // cache.block_size_tokens,), machines)
    each = tuple(replace(machine, replica=replica) for machine in settings.machines)
    return replace(settings, cache=cache, machines=each)


@examples(60)
@given(
    replica=replicas,
    cache=caches,
    tokens=st.sampled_from([4_096, 6_400, 25_600]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 9),
)
def test_the_books_of_a_drawn_schedule_balance(replica, cache, tokens, machines, seed):
    # what comes to the scheduler later than it arrives is in test_scheduler_relations
    replica, cache = replace(replica, client_offset_ns=0), replace(cache, lookup_ns=0)
    settings, trace = (
        with_capacity(replica, cache, tokens, machines),
        random_trace(seed, requests=50, sessions=7),
    )
    built = tuple(replace(machine, step_time=plain_table()) for machine in settings.machines)
    simulation = Simulation(replace(settings, machines=built), trace, RunOptions(schedule=True, check="full"))
    check_books(simulation.run(), simulation.replicas, step_time(replica), replica.async_scheduling)


def run(trace, tokens=25_600, **changes):
    replica = ReplicaSettings(
        **{"max_num_batched_tokens": 512, "max_num_seqs": 8, "scheduler": "sglang", **changes}
    )
    cache = CacheSettings(block_size_tokens=16, semantics="sglang")
    return Simulation(with_capacity(replica, cache, tokens), trace, RunOptions(check="full")).run()


@pytest.mark.parametrize(("release", "in_one_step"), [("0.5.22", False), ("0.5.23", True)])
def test_a_release_decides_if_a_chunk_counts_as_two_requests(release, in_one_step):
    """The rest of the first prompt and the second one fit in the second step."""
    own = {"scheduler": "sglang", "release": f"sglang@{release}", "max_num_seqs": 2}
    own |= {"max_num_batched_tokens": 64, "async_scheduling": "none"}
    sets = [f"replica.{key}={value}" for key, value in own.items()]
    scenario = load(*sets, "cache.block_size=16", "cluster.machines=1", "tiers.cpu=", "tiers.disk=")
    done = simulate(scenario.settings, trace_of([list("abcdef"), ["g"]], 16))
    first, second = done.requests["first_token_ns"].tolist()
    assert (first == second) == in_one_step


def test_the_longest_prefix_first_finds_more_than_the_order_of_arrival():
    trace = random_trace(2, requests=120, sessions=12)
    found = {
        policy: int(run(trace, 9_600, schedule_policy=policy).requests["cached_prefix_length_used"].sum())
        for policy in ("fcfs", "lpm", "dfs-weight")
    }
    assert min(found["lpm"], found["dfs-weight"]) > found["fcfs"]


def test_the_longest_answer_first():
    trace = random_trace(2, requests=60, sessions=6)
    once = replace(trace, arrival_ns=trace.arrival_ns * 0)
    rows = run(once, schedule_policy="lof", max_num_seqs=1).requests
    order = rows["finish_ns"].argsort()
    answers = rows["output_tokens"][order].tolist()
    assert answers == sorted(answers, reverse=True)


def test_what_is_reserved_of_answers_decides_how_many_are_retracted():
    trace = random_trace(5, requests=60, sessions=30)
    once = replace(trace, arrival_ns=trace.arrival_ns * 0, output_tokens=trace.output_tokens * 0 + 100)
    preempted = [
        run(once, 6_400, schedule_conservativeness=share, max_num_seqs=60).requests["preemptions"].sum()
        for share in (0.02, 100.0)
    ]
    assert preempted[0] > preempted[1]


PREFILL_NS, TOKEN_NS, DECODE_NS, SEQUENCE_NS = 1_000_000, 20_000, 5_000_000, 1_000


def two_that_do_not_fit(prompts, tokens, answer=10, later_ns=1):
    """Two prompts, the second a nanosecond behind the first, pages of one token."""
    cache = CacheSettings(block_size_tokens=1, semantics="sglang")
    # 0.098 of the remaining tokens of a running answer is reserved
    replica = ReplicaSettings(512, 8, scheduler="sglang", schedule_conservativeness=0.14)
    settings = with_capacity(replica, cache, tokens)
    machine = replace(settings.machines[0], step_time=plain_table())
    rows = [[f"{name}{k}" for k in range(length)] for name, length in zip("ab", prompts, strict=True)]
    trace = trace_of(rows, 1, list(prompts), [0, later_ns], [answer, answer])
    simulation = Simulation(
        replace(settings, machines=(machine,)), trace, RunOptions(schedule=True, check="full")
    )
    return simulation.run().requests, simulation.replicas[0].schedule()


def test_a_retraction_step_by_step():
    """33 tokens: 10 are held, and 10 + 10 + 1 are less than 23 - 0.098 * 9, so both run.

    Six steps bring each a token: 10 + 6 and 10 + 6 are held, and a seventh needs two where one is free. The
    second
    goes, with the KV of 16 tokens; to free 20 tokens for the other its prompt leaves the tree. The first
    decodes
    alone to its tenth token; then the second computes its 17 known tokens and decodes twice.
    """
    rows, log = two_that_do_not_fit((10, 10), 33)
    first, second = PREFILL_NS + 10 * TOKEN_NS, 2 * (PREFILL_NS + 10 * TOKEN_NS)
    done = second + 6 * (DECODE_NS + 2 * SEQUENCE_NS) + 3 * (DECODE_NS + SEQUENCE_NS)
    again = done + PREFILL_NS + 17 * TOKEN_NS + 2 * (DECODE_NS + SEQUENCE_NS)
    assert rows["first_token_ns"].tolist() == [first, second]
    assert rows["finish_ns"].tolist() == [done, again]
    assert rows["preemptions"].tolist() == [0, 1]
    assert rows["recomputed_tokens"].tolist() == [0, 16]
    assert [line[1:3] for line in log.steps] == [
        *[(10, 0), (10, 0)],
        *[(0, 2)] * 6,
        *[(0, 1)] * 3,
        (17, 0),
        *[(0, 1)] * 2,
    ]
    assert log.admissions == [(0, 0, 0), (1, 1, 0), (11, 1, 0)]


@pytest.mark.parametrize(("tokens", "first"), [(42, 10), (43, 20)])
def test_an_admission_needs_a_token_more_than_it_reserves(tokens, first):
    """Each of two in one pass reserves its prompt, its answer and a page: 21, so 42 are too few for both."""
    _, log = two_that_do_not_fit((10, 10), tokens, later_ns=0)
    assert log.steps[0][1] == first


def test_of_equal_answers_the_longest_prompt_is_retracted():
    """The first prompt has two tokens more: it goes, and comes again when the second is done."""
    rows, _ = two_that_do_not_fit((12, 10), 36)
    assert rows["preemptions"].tolist() == [1, 0]
    assert rows["finish_ns"][0] > rows["finish_ns"][1]


def test_answers_that_just_fit_are_not_retracted():
    rows, log = two_that_do_not_fit((10, 10), 38)
    assert rows["preemptions"].tolist() == [0, 0], "38 tokens are just enough: 2 * (10 + 9)"
    assert log.counts.scheduled_tokens == 20 + 2 * 9


def test_a_retracted_prompt_that_stays_in_the_tree_is_found_again():
    """Answers of 30 in 60 tokens: after 20 steps 60 are held, and the second goes with 20 of its answer.

    Those 20 are free, so its prompt stays: it computes 21 tokens when the first is done, after 9 steps alone.
    """
    rows, log = two_that_do_not_fit((10, 10), 60, answer=30)
    assert rows["preemptions"].tolist() == [0, 1]
    assert rows["recomputed_tokens"].tolist() == [0, 30 - 10]
    assert log.admissions == [(0, 0, 0), (1, 1, 0), (31, 1, 10)]
    assert [line[1:3] for line in log.steps] == [
        *[(10, 0), (10, 0)],
        *[(0, 2)] * 20,
        *[(0, 1)] * 9,
        (21, 0),
        *[(0, 1)] * 8,
    ]


def test_mixed_chunks_keep_answers_going():
    trace = random_trace(4, requests=80, sessions=9)
    apart, mixed = (run(trace, max_num_batched_tokens=128, enable_mixed_chunk=m) for m in (False, True))
    longest = [max(one.itl_ns.values_ns[one.itl_ns.counts > 0]) for one in (apart, mixed)]
    assert longest[1] < longest[0]


def test_the_tree_comes_with_the_scheduler():
    said = ["replica.scheduler=sglang", "replica.schedule_policy=lpm"]
    assert load_scenario(None, said).settings.cache.semantics == "sglang"


def test_machines_with_roles_have_another_scheduler():
    """SGLang's scheduler hands nothing over, whatever says that a machine only prefills."""
    text = "cache: {semantics: sglang}\nreplica: {scheduler: sglang}\ntiers: {gpu: {capacity: 99 blocks}}\n"
    with pytest.raises(KvsimError, match="kvsim's scheduler and vLLM's do that"):
        load("cluster.machines=2", "machines[0].role=prefill", text=text)
    settings = load("cluster.machines=2", text=text).settings
    machines = (replace(settings.machines[0], role="prefill"), settings.machines[1])
    with pytest.raises(KvsimError, match="SGLang's scheduler serves whole requests here"):
        simulate(replace(settings, machines=machines), random_trace(1, requests=3))
