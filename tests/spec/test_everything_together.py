"""Everything at once, at random: tiers down to one block, preemption, chunked prefill, writing through,
prefetching, remote reads and eviction, on several machines. No crash, no broken invariant, nothing held at
the end; the core equals the specification, or, with routers that the specification lacks, its own run
without lookahead."""

import numpy as np
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions, Simulation
from support.agreement import ENGINES, assert_same, beyond_spec, by_spec
from support.any_cluster import clusters
from support.conserved import check_the_end
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.traces import random_trace


def checked(cluster: ClusterSettings, trace, **options):
    simulation = Simulation(cluster, trace, RunOptions(**options))
    run = simulation.run()
    check_the_end(simulation, run)
    return run


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.integers(0, 10**6))
def test_everything_together(cluster, seed):
    trace = random_trace(seed, requests=40, sessions=4)
    native = checked(cluster, trace, check="full")
    if beyond_spec(cluster):
        event("routers beyond the specification")
        assert_same(native, assert_same_by_the_clock(cluster, trace))
    else:
        for engine in ENGINES:
            assert_same(native, by_spec(cluster, trace, engine))
    rows = native.requests
    for name in ("cpu", "disk", "remote"):
        if rows[f"cached_{name}_tokens"].any():
            event(f"hits from {name}")
    for what, there in {
        "handed over": (rows["decode_machine"] >= 0).any(),
        "preemptions": rows["preemptions"].any(),
        "rejections": rows["status"].any(),
        "several machines": len(np.unique(rows["machine"])) > 1,
        "fair": any(c.by_layer for c in Simulation(cluster, trace, RunOptions()).channels.values()),
    }.items():
        if there:
            event(what)
