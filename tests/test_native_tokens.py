"""Simplified accounting by the core against the token store in Python: settings drawn at random, runs equal whole.

Seed 000, 3.5. The store by hand: ``test_token_store.py``, and ``rust/core/src/token_store/tests.rs``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from examples import examples
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.errors import InvariantError
from kvcache_sim.serving.queue import ORDERS
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import ReplicaSettings, RouterSettings
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.simulation import RunOptions, Simulation
from support.clusters import BLOCK, cluster
from support.view_settings import EVER, prefix_views, said_by, session_views, traces

caches = st.builds(
    CacheSettings,
    block_size_tokens=st.sampled_from([BLOCK, 32, 64]),
    accounting=st.just("simplified"),
    cache_output=st.booleans(),
    full_hit=st.sampled_from(["prefill-remainder", "skip-prefill"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
    session_view=session_views,
    prefix_view=st.one_of(st.just(CacheSettings().prefix_view), prefix_views((None, 64, 640, 4000))),
)
LEFT_BEHIND = "I1: requests were left behind"
#: Many requests do not fit, few do, all do.
capacities = st.sampled_from([40, 70, 110, 200, 400, None])


@st.composite
def replicas(draw) -> ReplicaSettings:
    drafts = draw(st.sampled_from([None, None, None, SpeculationSettings((0.8, 0.5), draft_ns=1_000_000)]))
    return ReplicaSettings(
        max_num_batched_tokens=draw(st.sampled_from([64, 512, 2048])),
        max_num_seqs=draw(st.sampled_from([1, 3, 8])),
        max_model_len=draw(st.sampled_from([None, 900])),
        queue_order=draw(st.sampled_from(["fcfs", *ORDERS])),
        duplicate_prefill=draw(st.sampled_from(["recompute", "wait"])),
        step_overhead_ns=draw(st.sampled_from([0, 3_000_000])),
        async_scheduling="none" if drafts else draw(st.sampled_from(["none", "length", "stop-token"])),
        client_offset_ns=draw(st.sampled_from([0, 5_000_000])),
        speculation=drafts,
    )


@st.composite
def clusters(draw):
    """Draw machines without lower tiers, one engine of two ranks now and then."""
    machines = draw(st.sampled_from([1, 1, 2, 3]))
    settings = cluster((100,), machines)
    own, cache = draw(replicas()), draw(caches)
    if machines == 2 and draw(st.booleans()):
        own = replace(own, ranks=2, async_scheduling="none", speculation=None, duplicate_prefill="recompute")
    size = draw(capacities)
    blocks = None if size is None else -(-size * BLOCK // cache.block_size_tokens)
    built = tuple(
        replace(machine, replica=own, tiers=(replace(machine.tiers[0], capacity_blocks=blocks),))
        for machine in settings.machines
    )
    router = RouterSettings(draw(st.sampled_from(list(ROUTERS))))
    return replace(settings, machines=built, cache=cache, router=router)


def windowed(trace, seed):
    """Return the trace with what a context window left of each prompt's history, where it says so."""
    draw = np.random.default_rng(seed)
    left = np.where(draw.random(len(trace)) < 0.5, draw.integers(0, trace.input_tokens + 1), -1)
    return replace(trace, history_tokens=left)


def outcome(settings, trace, backend="native", **options):
    """Return all that a run says; the line of one in which requests are left behind.

    A turn that is admitted after a later one of its session keeps from eviction what the session has, used or
    not: where little else fits it waits for ever, here as in Python.
    """
    simulation = Simulation(settings, trace, RunOptions(backend=backend, prefixes=True, **options))
    natives = [isinstance(replica, NativeReplica) for replica in simulation.replicas]
    assert natives == [backend == "native"] * len(natives)
    try:
        return said_by(simulation.run())
    except InvariantError as error:
        if error.what != LEFT_BEHIND:
            raise
        return str(error)


@examples(80, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), traces(), st.sampled_from([None, None, 1, 2]))
def test_the_core_counts_tokens_as_the_store_in_python(settings, trace, window):
    trace = trace if window is None else windowed(trace, window)
    native, reference = outcome(settings, trace), outcome(settings, trace, backend="python")
    assert native == reference
    if isinstance(native, str):
        event("a turn out of order cannot be admitted again")
        return
    rows = {name: np.array(native["requests", name]) for name in ("preemptions", "cached_prefix_length_used")}
    for what, there in (
        ("preemptions", rows["preemptions"].any()),
        ("hits", rows["cached_prefix_length_used"].any()),
        ("evictions", any(name.endswith("evicted_blocks") and n for name, n in native["counters"].items())),
    ):
        if there:
            event(what)


@examples(20)
@given(caches, capacities, traces())
def test_steps_and_evictions_are_recorded_alike(cache, size, trace):
    settings = cluster((100,))
    blocks = None if size is None else -(-size * BLOCK // cache.block_size_tokens)
    tier = replace(settings.machines[0].tiers[0], capacity_blocks=blocks)
    settings = replace(settings, cache=cache, machines=(replace(settings.machines[0], tiers=(tier,)),))
    options = {"record_window_ns": EVER, "check": "full"}
    assert outcome(settings, trace, **options) == outcome(settings, trace, "python", **options)
