"""Requests that arrive in batches: the core routes, queues and hands over as with an event for each."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.serving.handover.pools import most
from kvcache_sim.serving.router.prefix import LeastLoaded
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings, RouterSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from support.agreement import agree, assert_same, columns
from support.clusters import BLOCK, cluster
from support.drawn_settings import NATIVE
from support.examples import examples
from support.lookahead import assert_same_by_the_clock, packets_of
from support.pools import pools
from support.traces import random_trace


def comes_in_batches(settings, trace):
    """Return whether a run's requests arrive in batches."""
    return Simulation(settings, trace, RunOptions())._native_arrivals


replicas = st.builds(
    ReplicaSettings,
    max_num_batched_tokens=st.sampled_from([64, 512]),
    max_num_seqs=st.sampled_from([1, 3, 8]),
    max_model_len=st.sampled_from([None, None, 700]),
    async_scheduling=st.sampled_from(["none", "length", "stop-token"]),
)


@examples(40)
@given(
    router=st.sampled_from(NATIVE),
    threshold=st.sampled_from([1.0, 2.0, 50.0]),
    replica=replicas,
    semantics=st.sampled_from(["tree", "tree", "vllm", "sglang"]),
    full_hit=st.sampled_from(["prefill-remainder", "skip-prefill"]),
    tiers=st.sampled_from([(35,), (110,), (400,), (90, 60, 200)]),
    machines=st.integers(1, 5),
    seed=st.integers(1, 99),
)
def test_the_core_routes_as_with_single_arrivals(
    router, threshold, replica, semantics, full_hit, tiers, machines, seed
):
    tiers = tiers if semantics == "tree" else tiers[:1]
    full_hit = full_hit if semantics == "tree" else "prefill-remainder"
    settings = cluster(tiers, machines)
    settings = replace(
        settings,
        router=RouterSettings(router, load_threshold=threshold),
        cache=CacheSettings(block_size_tokens=BLOCK, semantics=semantics, full_hit=full_hit),
        machines=tuple(replace(machine, replica=replica) for machine in settings.machines),
    )
    trace = random_trace(seed, requests=60, sessions=7)
    assert_same_by_the_clock(settings, trace, batches=True)
    if semantics == "tree":
        agree(settings, trace)


@examples(30)
@given(
    router=st.sampled_from(NATIVE),
    decode=st.sampled_from([*NATIVE, "random", "overlap-cost"]),
    roles=st.sampled_from(["pd", "ppd", "pdd", "ppddd", "pbd", "pb"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    path=st.sampled_from(["gpu-direct", "gpu-direct", "via-cpu"]),
    first_token=st.sampled_from(["decode", "prefill"]),
    blocks=st.lists(st.sampled_from([40, 80, 300]), min_size=5, max_size=5),
    seed=st.integers(1, 99),
)
def test_the_core_chooses_who_decodes_as_with_single_arrivals(
    router, decode, roles, transfer, path, first_token, blocks, seed
):
    handover = HandoverSettings(path=path, transfer=transfer, first_token=first_token, router=decode)
    tiers = (300, 50) if path == "via-cpu" else (300,)
    settings = pools(roles, handover, tiers=tiers)
    machines = [
        replace(machine, tiers=(replace(machine.tiers[0], capacity_blocks=own), *machine.tiers[1:]))
        for machine, own in zip(settings.machines, blocks, strict=False)
    ]
    settings = replace(settings, machines=tuple(machines), router=RouterSettings(router))
    trace = random_trace(seed, requests=40, sessions=7)
    assert_same_by_the_clock(settings, trace, batches=decode in NATIVE)
    agree(settings, trace)


def test_requests_of_any_number_of_packets_come():
    settings = replace(cluster((110,), 3), router=RouterSettings("longest-prefix"))
    trace = random_trace(5, requests=60, sessions=7)
    whole = simulate(settings, trace)
    for size in (1, 7, 60):
        with packets_of(size):
            assert comes_in_batches(settings, trace)
            assert_same(simulate(settings, trace), whole)


def test_a_request_that_fits_no_machine_is_rejected_and_others_are_served():
    settings = cluster((35,), 2)
    run = assert_same_by_the_clock(settings, random_trace(3, requests=60, sessions=3), batches=True)
    assert 0 < columns(run.requests)["status"].count(STATUSES.index("rejected")) < 60


@pytest.mark.parametrize(
    "router",
    [
        RouterSettings("random"),
        RouterSettings("longest-prefix", view_interval_ns=10**9),
        RouterSettings("longest-prefix", index_blocks=50),
    ],
)
def test_what_the_core_does_not_see_stays_an_event(router):
    settings = replace(cluster((110,), 3), router=router)
    assert not comes_in_batches(settings, random_trace(1))


def test_a_plug_in_that_inherits_a_router_decides_by_itself(monkeypatch):
    class Last(LeastLoaded):
        def choose(self, sequence):
            return 2

    monkeypatch.setattr(Kind, "maker", lambda self, name: Last)
    settings = replace(cluster((400,), 3), router=RouterSettings("least-loaded"))
    assert not comes_in_batches(settings, random_trace(1))
    assert set(simulate(settings, random_trace(1)).requests["machine"]) == {2}


def test_all_other_routers_decide_in_python():
    in_core = {name for name in ROUTERS if hasattr(ROUTERS[name], "in_core")}
    assert in_core == set(NATIVE)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_most_that_fits(largest, limit):
    assert most(lambda number: number <= largest, limit) == min(largest, limit)
