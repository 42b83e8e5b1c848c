"""Prefixes that are shared once they are long enough and seen often enough: the core as the scheduler in Python.

Seed 000, 3.4; semantics 6. ``test_seed_000_narrated`` has the rule by hand.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from examples import examples
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from kvcache_sim.cache.prefix_view import PrefixViewSettings
from kvcache_sim.serving.replica.native import NativeReplica
from support.any_cluster import clusters
from support.clusters import cluster
from support.traces import random_trace
from support.view_settings import EVER, prefix_views, session_views, simulation_of, traces


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), prefix_views(), session_views, traces())
def test_the_core_shares_prefixes_as_the_scheduler_in_python(settings, prefix_view, session_view, trace):
    cache = replace(settings.cache, prefix_view=prefix_view, session_view=session_view)
    settings = replace(settings, cache=cache)
    simulation, native = simulation_of(settings, trace, prefixes=True)
    assert all(isinstance(replica, NativeReplica) for replica in simulation.replicas)
    _, reference = simulation_of(settings, trace, backend="python", prefixes=True)
    assert native == reference
    open_gate = replace(settings, cache=replace(cache, prefix_view=PrefixViewSettings()))
    if simulation_of(open_gate, trace)[1]["digests"] != native["digests"]:
        event("the gate decides")


@examples(10)
@given(st.sampled_from([(90,), (90, 200)]), prefix_views(), session_views, traces())
def test_steps_and_transfers_are_recorded_alike(tiers, prefix_view, session_view, trace):
    settings = cluster(tiers)
    cache = replace(settings.cache, prefix_view=prefix_view, session_view=session_view)
    settings = replace(settings, cache=cache)
    _, native = simulation_of(settings, trace, record_window_ns=EVER, check="full")
    _, stepped = simulation_of(settings, trace, record_window_ns=EVER, step_every_iteration=True)
    assert native == stepped


def test_of_requests_in_turn_the_first_min_seen_miss():
    """Without sessions and with room for all, prompt k of one text reuses its blocks from the ``min_seen``-th on."""
    trace = random_trace(1, requests=12, sessions=1)
    rows = [list(range(5))] * 12
    trace = replace(
        trace,
        arrival_ns=np.arange(12) * 10**10,
        input_tokens=np.full(12, 5 * 64),
        id_offsets=np.arange(13) * 5,
        block_ids=np.array(rows, np.uint32).ravel(),
        session=np.full(12, -1, np.int32),
        turn=np.zeros(12, np.int32),
    )
    plain = cluster((4000,))
    for min_seen in (1, 2, 5, 12, 13):
        cache = replace(plain.cache, prefix_view=PrefixViewSettings(min_seen=min_seen))
        simulation, said = simulation_of(replace(plain, cache=cache), trace)
        assert isinstance(simulation.replicas[0], NativeReplica)
        cached = said["requests", "cached_prefix_length_used"]
        # the last block is computed again: its last token is
        assert cached == [0 if k < max(min_seen, 1) else 5 * 64 - 16 for k in range(12)]
