"""Requests that come natively: the core routes, queues and hands over as the router in Python would have it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.serving.handover.pools import most
from kvcache_sim.serving.router.least_loaded import LeastLoaded
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings, RouterSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from pools import pools
from support.clusters import BLOCK, cluster
from support.drawn_settings import NATIVE
from support.traces import random_trace


def told(settings, trace, **options):
    """Return the simulation and all that a run without further records says."""
    simulation = Simulation(settings, trace, RunOptions(**options))
    run = simulation.run()
    tables = {
        (of, name): column.tolist()
        if isinstance(column, np.ndarray)
        else [column.words[c] for c in column.codes]
        for of, table in (("requests", run.requests), ("series", run.series))
        for name, column in table.items()
    }
    tables["itl"] = [run.itl_ns.values_ns.tolist(), run.itl_ns.counts.tolist()]
    tables["digests"] = [run.digest_events, run.digest_results, run.counters, run.end_ns]
    return simulation, tables


def come_natively(simulation):
    return simulation._comes_natively


def agree(settings, trace):
    """Check that requests come natively, and that the reference tells the same; return what is told."""
    simulation, native = told(settings, trace)
    assert come_natively(simulation)
    stepped, plain = told(settings, trace, step_every_iteration=True)
    assert not come_natively(stepped)
    assert native == plain
    return native


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
def test_the_core_routes_as_the_router_in_python(
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
    native = agree(settings, trace)
    if semantics == "tree":
        _, reference = told(settings, trace, backend="python")
        assert native["digests"] == reference["digests"]


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
def test_the_core_chooses_who_decodes_as_the_router_in_python(
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
    if decode in NATIVE:
        agree(settings, trace)
        return
    simulation, native = told(settings, trace)
    assert not come_natively(simulation)
    assert native == told(settings, trace, step_every_iteration=True)[1]


def test_requests_of_any_number_of_packets_come(monkeypatch):
    settings = replace(cluster((110,), 3), router=RouterSettings("longest-prefix"))
    trace = random_trace(5, requests=60, sessions=7)
    _, whole = told(settings, trace)
    for size in (1, 7, 60):
        monkeypatch.setattr("kvcache_sim.serving.front_door._AT_A_TIME", size)
        simulation, parts = told(settings, trace)
        assert come_natively(simulation)
        assert parts == whole


def test_a_request_that_fits_nowhere_is_rejected_beside_others():
    settings = cluster((35,), 2)
    native = agree(settings, random_trace(3, requests=60, sessions=3))
    assert 0 < native["requests", "status"].count(STATUSES.index("rejected")) < 60


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
    simulation = Simulation(settings, random_trace(1), RunOptions())
    assert not come_natively(simulation)


def test_a_plug_in_that_inherits_a_router_decides_by_itself(monkeypatch):
    class Last(LeastLoaded):
        def choose(self, sequence):
            return 2

    monkeypatch.setattr(Kind, "maker", lambda self, name: Last)
    settings = replace(cluster((400,), 3), router=RouterSettings("least-loaded"))
    simulation, run = told(settings, random_trace(1))
    assert not come_natively(simulation)
    assert set(run["requests", "machine"]) == {2}


def test_all_other_routers_decide_in_python():
    told_by = {name for name in ROUTERS if hasattr(ROUTERS[name], "in_core")}
    assert told_by == set(NATIVE)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_most_that_fits(largest, limit):
    assert most(lambda number: number <= largest, limit) == min(largest, limit)
