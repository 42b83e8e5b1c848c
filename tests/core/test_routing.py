"""Routers: each rule in closed form, balance of load, and queries that change nothing."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.engine import ARRIVAL, NO_MACHINE, SAMPLE, Engine
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.router.contract import Look, RouterView
from kvcache_sim.serving.router.in_core import look_at
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.router.views import Scrapes
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import RunOptions, Simulation, simulate
from kvcache_sim.workload.readers.read import read_trace
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.product.reports import summary_text
from support.shared_files import shared
from support.traces import random_trace


@dataclass
class Machine:
    """The state of a replica that a router sees."""

    requests: int = 0
    queued_tokens: int = 0
    expected_prefill_tokens: int = 0

    @property
    def load(self):
        return self


def load(text, *overrides):
    return scenario_from_text(text, "s.yaml", Path.cwd(), overrides)


def router(policy, machines, found=(), active=(), **settings):
    look = Look(list(found), list(active), list(found))
    view = RouterView(machines, RouterSettings(policy, **settings), 7, BLOCK, lambda sequence: look)
    return ROUTERS[policy](view)


def request(tokens=10 * BLOCK, session=-1):
    return Arrival(0, 0, tokens, 5, session)


def loads(*requests):
    return [Machine(requests=n) for n in requests]


def test_longest_prefix_by_hand():
    def choose(found, pending, **settings):
        return router("longest-prefix", loads(*pending), found, **settings).choose(request())

    assert choose([1, 5, 5], [3, 4, 2]) == 2  # the longest; of two the less loaded
    assert choose([1, 5, 4], [2, 4, 2]) == 1  # twice the load is not above the threshold
    assert choose([1, 5, 4], [2, 5, 2]) == 2  # above it: the longest among the least loaded
    assert choose([1, 5, 4], [2, 5, 2], load_threshold=3.0) == 1


@given(
    st.integers(1, 6).flatmap(
        lambda machines: st.lists(
            st.tuples(
                st.lists(st.integers(0, 10), min_size=machines, max_size=machines),
                st.lists(st.integers(0, 12), min_size=machines, max_size=machines),
                st.integers(1, 10 * BLOCK + 3),
            ),
            min_size=1,
            max_size=30,
        )
    ),
    st.sampled_from([0, 1, 3, 64]),
    st.sampled_from([1.0, 1.5, 3.0]),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
@example([([1, 5, 4], [0, n, 0], 10 * BLOCK) for n in (64, 65)], 64, 1.5, 0.3)
@example([([1, 5, 4], [200, 299 + n, 300 + n], 10 * BLOCK) for n in (0, 1)], 64, 1.5, 0.3)
@example([([0, 3, 0], [0, 1, 0], 10 * BLOCK), ([6, 6, 6], [9, 3, 4], 10 * BLOCK)], 64, 1.5, 0.3)
def test_cache_aware_is_the_gateways_rule(requests, balance_abs_threshold, balance_rel_threshold, threshold):
    """Choice by choice against the steps of cache_aware.rs, written down from their description."""
    machines = loads(*requests[0][1])
    found = []
    look = Look(found, [], found)
    settings = RouterSettings(
        "cache-aware",
        cache_threshold=threshold,
        balance_abs_threshold=balance_abs_threshold,
        balance_rel_threshold=balance_rel_threshold,
    )
    made = ROUTERS["cache-aware"](RouterView(machines, settings, 7, BLOCK, lambda sequence: look))
    processed = [0] * len(machines)
    for blocks, pending, tokens in requests:
        found[:] = [min(b, tokens // BLOCK) for b in blocks]
        for machine, load in zip(machines, pending, strict=True):
            machine.requests = load
        workers = sorted(range(len(machines)), key=lambda w: (pending[w], processed[w], w))
        low, high = min(pending), max(pending)
        if high - low > balance_abs_threshold and high > balance_rel_threshold * low:
            expected = workers[0]
        elif max(found) * BLOCK / tokens > threshold:
            expected = next(w for w in workers if found[w] == max(found))
        else:
            expected = workers[0]
        processed[expected] += 1
        assert made.choose(request(tokens)) == expected


def test_costs_by_hand():
    def product(found, pending):
        return router("prefill-cost", loads(*pending), found).choose(request())

    assert product([0, 8], [1, 8]) == 1  # 10 x 2 against 2 x 9 blocks
    assert product([0, 8], [1, 9]) == 0  # 10 x 2 against 2 x 10: a tie
    assert product([0, 8], [2, 9]) == 1

    def overlap(found, active, expected=(0, 0), weight=1.0):
        machines = [Machine(expected_prefill_tokens=n * BLOCK) for n in expected]
        return router("overlap-cost", machines, found, active, overlap_weight=weight).choose(request())

    assert overlap([0, 6], [0, 11]) == 1  # 10 + 0 + 10 against 4 + 11 + 4
    assert overlap([0, 6], [0, 13]) == 0
    assert overlap([0, 6], [0, 13], weight=2.0) == 1
    assert overlap([0, 6], [0, 11], expected=(0, 3)) == 0
    shared = [Machine(), Machine(queued_tokens=50 * BLOCK)]  # found on the GPU: nothing to do first
    assert router("overlap-cost", shared, [0, 6], [0, 11]).choose(request()) == 1


@pytest.mark.parametrize(
    "policy",
    ["least-loaded", "session-affinity", "cache-aware", "longest-prefix", "prefill-cost", "overlap-cost"],
)
@given(idle=st.sets(st.integers(0, 7), min_size=1), choices=st.integers(1, 40))
def test_equal_machines_take_turns(policy, idle, choices):
    """Of machines that are alike, the one chosen least often; the busy ones get nothing."""
    busy = [Machine(5, 500, 500) for _ in range(8)]
    machines = [Machine() if m in idle else busy[m] for m in range(8)]
    active = [0 if m in idle else 90 for m in range(8)]
    made = router(policy, machines, [0] * 8, active)
    counts = np.bincount([made.choose(request()) for _ in range(choices)], minlength=8)
    even = counts[sorted(idle)]
    assert even.sum() == choices
    assert even.max() - even.min() <= 1


def test_the_overlap_router_credits_lower_tiers_with_a_part():
    """Of six found blocks two are on the cpu and three on the disk: 2.75 blocks of prefill are lacking."""

    class Tree:
        def match_prefix(self, asked, blocks):
            assert (asked, blocks) == (0, 6)
            return [(0, 0, 1, 0), (1, 1, 3, 0), (2, 3, 6, 0)]

    def choose(active, weight=1.0, machines=None, sequence=None):
        look, sequence = Look([0, 6], active, [0, 1]), sequence or request()
        settings = RouterSettings("overlap-cost", overlap_weight=weight)
        view = RouterView(machines or loads(0, 0), settings, 7, BLOCK, lambda _: look, [None, Tree()])
        assert view.uncredited_blocks(request(), [0, 6]) == [0, 2 * 0.25 + 3 * 0.75]
        return ROUTERS["overlap-cost"](view).choose(sequence)

    assert choose([0, 9]) == 1  # 10 + 10 against 4 + 2.75 + 9 + 4
    assert choose([0, 10]) == 0  # on the GPU alone it would be 18 against 20
    assert choose([0, 10], weight=2.0) == 1
    # The loads of waiting requests count like the tokens that they compute: 20 against 10.75 and 6.75 a
    # prompt in the queue.
    waiting, sent = [Machine(), Machine()], []
    for _ in range(3):
        one = request()
        sent.append(choose([0, 0], machines=waiting, sequence=one))
        waiting[sent[-1]].expected_prefill_tokens += one.expected_prefill_tokens
    assert sent == [1, 1, 0]
    assert waiting[1].expected_prefill_tokens == 2 * 6.75 * BLOCK


@given(st.lists(st.integers(-1, 6), max_size=60))
def test_a_session_stays_on_one_machine(sessions):
    machines = loads(0, 0, 0)
    affine = router("session-affinity", machines)
    seen = {}
    for session in sessions:
        chosen = affine.choose(request(session=session))
        if session >= 0:
            assert seen.setdefault(session, chosen) == chosen
        machines[chosen].queued_tokens += 1
    assert len(set(seen.values())) >= min(len(seen), 2) or -1 in sessions


def test_random_repeats_with_its_seed_and_reaches_every_machine():
    draws = [[router("random", loads(0, 0, 0)).choose(request()) for _ in range(1)] for _ in range(3)]
    assert draws[0] == draws[1] == draws[2]
    one = router("random", loads(0, 0, 0))
    counts = np.bincount([one.choose(request()) for _ in range(3000)], minlength=3)
    assert counts.min() > 900


def test_looking_never_changes_recency():
    """The same run with a look before every decision, thrown away, has the same digests."""
    settings = cluster((90, 60), 3)
    plain = simulate(settings, random_trace(2))
    simulation = Simulation(settings, random_trace(2), RunOptions())
    look = look_at(simulation.replicas, simulation.engine)

    class Looks:
        def __init__(self, inner):
            self.inner = inner

        def choose(self, sequence):
            look(sequence)
            return self.inner.choose(sequence)

    simulation.cluster.router = Looks(simulation.cluster.router)
    looked = simulation.run()
    assert (plain.digest_events, plain.digest_results) == (looked.digest_events, looked.digest_results)


def test_counts_of_a_replica_end_at_nothing():
    settings = replace(cluster((90, 60), 2), router=RouterSettings("overlap-cost"))
    simulation = Simulation(settings, random_trace(1), RunOptions())
    simulation.run()
    for replica in simulation.replicas:
        load = replica.load
        assert (load.requests, load.queued_tokens, load.expected_prefill_tokens) == (0, 0, 0)


def test_the_summary_counts_machines_that_got_nothing():
    settings = replace(cluster((400,), 4), router=RouterSettings("session-affinity"))
    trace = random_trace(1)
    trace = replace(trace, session=np.zeros_like(trace.session))
    summary = summarize(simulate(settings, trace), BLOCK)
    assert summary["machines"] == {"requests": [120, 0, 0, 0], "max_over_mean": 4.0, "jain": 0.25}
    wall = {"wall": {"cpu_s": 0.1, "peak_rss_bytes": 1}}
    assert "machines   120 0 0 0 requests  max/mean 4.00  Jain 0.250" in summary_text(summary | wall, "run")
    alike = replace(trace, block_ids=np.zeros_like(trace.block_ids))  # every prompt begins alike
    even = replace(settings, router=RouterSettings("longest-prefix"))
    assert summarize(simulate(even, alike), BLOCK)["machines"]["jain"] > 0.95


def test_no_prefix_aware_router_leaves_one_of_four_machines_out():
    path = shared("traces/conversation_trace.jsonl")
    trace = read_trace(path)
    base = load("cluster: {machines: 4}\ntiers: {gpu: {capacity: 1000 blocks}}").settings

    def machines(policy):
        one = replace(base, router=RouterSettings(policy))
        return summarize(simulate(one, trace), 512)["machines"]

    assert machines("longest-prefix")["max_over_mean"] < 1.2
    assert machines("prefill-cost")["max_over_mean"] < 1.2


@dataclass
class Live:
    """Loads that name the time at which they are read."""

    engine: Engine

    def requests(self):
        return [self.engine.now_ns, 0]

    def queued_tokens(self):
        return [0, self.engine.now_ns]

    def occupancy(self):
        return "at", self.engine.now_ns


@examples(60)
@given(
    st.lists(st.integers(0, 25), min_size=1, max_size=12),
    st.integers(1, 9),
    st.booleans(),
    st.integers(0, 60),
)
def test_loads_are_those_of_the_last_poll_before_an_arrival(gaps, interval, arrivals_only, open_until):
    """A poll at each multiple of the interval that an arrival needs; at each of them while requests are open."""
    engine, machine, needed = Engine(), Machine(), set()
    scrapes = Scrapes(engine, [machine], interval)
    polled_loads = scrapes.of(Live(engine), 2)
    assert (polled_loads.requests(), polled_loads.queued_tokens(), polled_loads.looks) == ([0, 0], [0, 0], 0)
    if arrivals_only:
        scrapes.for_arrivals_only()
    times = [sum(gaps[: k + 1]) for k in range(len(gaps))]

    def expect(k):
        if k < len(times):
            engine.schedule(times[k], ARRIVAL, NO_MACHINE, arrive, k)
            scrapes.expect(times[k])

    def arrive(k):
        polled = times[k] // interval * interval
        needed.add(polled)
        assert polled_loads.requests() == [polled, 0]
        assert polled_loads.queued_tokens() == [0, polled]
        assert polled_loads.occupancy() == ("at", polled)
        if arrivals_only:
            assert polled_loads.looks == len(needed)
        machine.requests = int(times[k] < open_until)
        expect(k + 1)

    def close(_):
        machine.requests = 0

    expect(0)
    engine.schedule(max(open_until, times[-1]), SAMPLE, NO_MACHINE, close)
    engine.run()
    if not arrivals_only and times[0] < open_until <= times[-1]:
        between = range(times[0] // interval * interval, open_until, interval)
        assert polled_loads.looks >= len(needed | {at for at in between if at >= times[0]})
