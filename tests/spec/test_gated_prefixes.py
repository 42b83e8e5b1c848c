"""Prefixes that are shared once they are long enough and seen often enough: the core as the specification.

Seed 000, 3.4; semantics 6. ``test_seed_000_narrated`` has the rule by hand.
"""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import PrefixViewSettings
from kvcache_sim.simulation import simulate
from support.agreement import agree, beyond_spec
from support.any_cluster import clusters
from support.clusters import cluster
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.recorded import assert_recording_changes_nothing
from support.traces import random_trace
from view_settings import prefix_views, session_views, traces


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), prefix_views(), session_views, traces())
def test_shared_prefixes_agree(settings, prefix_view, session_view, trace):
    cache = replace(settings.cache, prefix_view=prefix_view, session_view=session_view)
    settings = replace(settings, cache=cache)
    by_clock = assert_same_by_the_clock(settings, trace)
    run = by_clock if beyond_spec(settings) else agree(settings, trace)
    open_gate = replace(settings, cache=replace(cache, prefix_view=PrefixViewSettings()))
    if simulate(open_gate, trace).digest_events != run.digest_events:
        event("the gate decides")
    digests = [
        simulate(replace(settings, cache=replace(cache, prefix_view=view)), trace).digest_events
        for view in (replace(prefix_view, max_tokens=None), replace(prefix_view, max_tokens=1 << 40))
    ]
    assert digests[0] == digests[1], "a size limit above all prefixes changes nothing"
    event("the size limit decides" if digests[0] != run.digest_events else "another gate decides")


@examples(10)
@given(st.sampled_from([(90,), (90, 200)]), prefix_views(), session_views, traces())
def test_recording_changes_nothing(tiers, prefix_view, session_view, trace):
    settings = cluster(tiers)
    cache = replace(settings.cache, prefix_view=prefix_view, session_view=session_view)
    settings = replace(settings, cache=cache)
    assert_recording_changes_nothing(settings, trace)


def test_of_requests_in_turn_the_first_min_seen_miss():
    """Without sessions and evictions, prompt k of one text reuses its blocks from the ``min_seen``-th on."""
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
        cached = agree(replace(plain, cache=cache), trace).requests["cached_prefix_length_used"].tolist()
        # the last block is computed again: its last token is
        assert cached == [0 if k < max(min_seen, 1) else 5 * 64 - 16 for k in range(12)]
