"""Prefetching: the core loads blocks before their requests need them, as the specification does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.serving.settings import RouterSettings
from support.agreement import agree
from support.clusters import cluster, uneven, varied
from support.drawn_settings import NATIVE, lookahead
from support.examples import examples
from support.lookahead import assert_same_by_the_clock, packets_of
from support.traces import turns

#: The network: bytes per second, and its latency in nanoseconds.
WIRE = (3 * 10**9, 30_000)


@pytest.mark.parametrize("seed", [19, 44])
@pytest.mark.parametrize("others", [(90, 60, 400), (90, 70, 90)])
def test_what_finds_no_free_blocks_here_ends_a_prefetch(others, seed):
    """The next part, on another machine, would begin behind blocks that stay on disk."""
    movement = MovementSettings(
        write={"gpu": "through", "cpu": "through"},
        fetch="split",
        fetch_timeout_ns=3_000_000,
        prefetch="session",
        prefetch_share=1.0,
        prefetch_lead_ns=0,
        layer_pipelining=False,
        lookup="cluster",
        remote_disk="staged",
    )
    shapes = [others, (90, 60, 400), (90, 70, 90), (90, 60, 400)]
    agree(varied(uneven(shapes), wire=WIRE, movement=movement), turns(seed, closed_loop=False))


@examples(25)
@given(
    movement=lookahead,
    router=st.sampled_from(NATIVE),
    lookup=st.sampled_from(["local", "cluster"]),
    machines=st.integers(2, 4),
    size=st.sampled_from([1, 7, 60]),
    seed=st.integers(1, 10**6),
)
def test_requests_of_a_batch_have_their_blocks_brought_up(movement, router, lookup, machines, size, seed):
    movement = replace(movement, prefetch="queued", lookup=lookup)
    parts = {"movement": movement, "router": RouterSettings(router)}
    settings = varied(cluster((90, 60, 400), machines), wire=WIRE, **parts)
    with packets_of(size):
        assert_same_by_the_clock(settings, turns(seed, closed_loop=False), batches=True)
    agree(settings, turns(seed, closed_loop=False))


def test_each_policy_has_something_to_bring_up():
    """The settings above are such that blocks come up, from below and from other machines, and requests stay
    for them."""
    for policy in PREFETCHES:
        for lookup in ("local", "cluster"):
            movement = MovementSettings(fetch="wait", prefetch=policy, lookup=lookup)
            settings = varied(cluster((90, 60, 400), 2), wire=WIRE, movement=movement)
            counters = agree(settings, turns(4, closed_loop=True, requests=120)).counters
            assert counters["prefetched_blocks"] > 100
            assert (counters.get("edge.remote->cpu.bytes", 0) > 0) == (lookup == "cluster")
