"""Simplified accounting by the core and by the specification: settings drawn at random, runs equal whole.

Seed 000, 3.5. The store by hand: ``test_token_store.py``.
"""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.serving.queue import ORDERS
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import ReplicaSettings, RouterSettings
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import assert_same, by_spec, columns
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.spec_routers import ALL_ROUTERS as SPEC_ROUTERS
from view_settings import EVER, prefix_views, session_views, traces

caches = st.builds(
    CacheSettings,
    block_size_tokens=st.sampled_from([BLOCK, 32, 64]),
    accounting=st.just("simplified"),
    cache_output=st.booleans(),
    full_hit=st.sampled_from(["prefill-remainder", "skip-prefill"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
    session_view=session_views,
    prefix_view=st.one_of(st.just(CacheSettings().prefix_view), prefix_views()),
)
#: Many requests do not fit, few do, all do.
capacities = st.sampled_from([40, 70, 110, 200, 400, None])


@st.composite
def replicas(draw, may_draft: bool) -> ReplicaSettings:
    draft = SpeculationSettings((0.8, 0.5), draft_ns=1_000_000)
    drafts = draw(st.sampled_from([None, draft])) if may_draft else None
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
def clusters(draw, drafts=False):
    """Draw machines without lower tiers; with ``drafts`` also one engine of two ranks, and drafted tokens."""
    machines = draw(st.sampled_from([1, 1, 2, 3]))
    settings = cluster((100,), machines)
    own, cache = draw(replicas(drafts)), draw(caches)
    if drafts and machines == 2 and draw(st.booleans()):
        own = replace(own, ranks=2, async_scheduling="none", speculation=None, duplicate_prefill="recompute")
    size = draw(capacities)
    blocks = None if size is None else -(-size * BLOCK // cache.block_size_tokens)
    built = tuple(
        replace(machine, replica=own, tiers=(replace(machine.tiers[0], capacity_blocks=blocks),))
        for machine in settings.machines
    )
    router = RouterSettings(draw(st.sampled_from(list(ROUTERS if drafts else SPEC_ROUTERS))))
    return replace(settings, machines=built, cache=cache, router=router)


def windowed(trace, seed):
    """Return the trace with what a context window left of each prompt's history, where it says so."""
    draw = np.random.default_rng(seed)
    left = np.where(draw.random(len(trace)) < 0.5, draw.integers(0, trace.input_tokens + 1), -1)
    return replace(trace, history_tokens=left)


@examples(80, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), traces(), st.sampled_from([None, None, 1, 2]))
def test_the_core_counts_tokens_as_the_specification(settings, trace, window):
    trace = trace if window is None else windowed(trace, window)
    native = simulate(settings, trace, options=RunOptions(check="full"))
    assert native.engine.name == "native"
    assert_same(native, by_spec(settings, trace, "spec-plain"))
    for what, there in (
        ("preemptions", native.requests["preemptions"].any()),
        ("hits", native.requests["cached_prefix_length_used"].any()),
        ("evictions", any(n.endswith("evicted_blocks") and count for n, count in native.counters.items())),
    ):
        if there:
            event(what)


@examples(30, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(drafts=True), traces(), st.booleans())
def test_drafts_and_ranks_count_tokens_at_any_time(settings, trace, records):
    """Runs that the specification does not cover: equal with and without lookahead, and with all recorded."""
    run = assert_same_by_the_clock(settings, trace)
    if records:
        full = simulate(settings, trace, options=RunOptions(check="full", record_window_ns=EVER))
        assert full.digest_events == run.digest_events
        assert columns(full.requests) == columns(run.requests)
