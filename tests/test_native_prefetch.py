"""Prefetching: the core loads blocks before their requests need them, as the specification does."""

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.serving.settings import HandoverSettings, RouterSettings
from pools import pools
from support.agreement import agree
from support.clusters import cluster, uneven, varied
from support.drawn_settings import NATIVE, kinds, lookahead, replicas, trees
from support.lookahead import assert_same_by_the_clock
from support.traces import turns, with_aborts

#: The network: bytes per second, and its latency in nanoseconds.
WIRE = (3 * 10**9, 30_000)


@examples(40)
@given(
    replica=replicas,
    cache=trees,
    movement=lookahead,
    shape=st.sampled_from([(90, 60, 400), (90, 200, 900), (100, 40, 60), (90, 200)]),
    machines=st.sampled_from([1, 1, 3]),
    kind=st.one_of(st.just({}), st.just({}), kinds),
    closed_loop=st.booleans(),
    seed=st.integers(1, 10**6),
)
def test_prefetches_of_one_machine_agree(replica, cache, movement, shape, machines, kind, closed_loop, seed):
    plain = cluster(shape, machines, latency_occupies=seed % 2 == 0)
    settings = varied(plain, replica, kind, cache=cache, movement=movement)
    agree(settings, turns(seed, closed_loop))


@examples(25)
@given(
    replica=replicas,
    movement=lookahead,
    shapes=st.lists(st.sampled_from([(90, 60, 400), (90, 70, 90), (100, 40, 60)]), min_size=2, max_size=4),
    remote_disk=st.sampled_from(["direct", "staged"]),
    wire=st.sampled_from([(3 * 10**9, 30_000), (10**11, 0), (5 * 10**8, 2_000_000)]),
    kind=st.one_of(st.just({}), st.just({}), kinds),
    closed_loop=st.booleans(),
    seed=st.integers(1, 10**6),
)
def test_prefetches_of_other_machines_agree(
    replica, movement, shapes, remote_disk, wire, kind, closed_loop, seed
):
    movement = replace(movement, lookup="cluster", remote_disk=remote_disk)
    settings = varied(uneven(shapes), replica, kind, wire, movement=movement)
    agree(settings, turns(seed, closed_loop))


@pytest.mark.parametrize("others", [(90, 60, 400), (90, 70, 90)])
def test_what_finds_no_free_blocks_here_ends_a_prefetch(others):
    """Found by the test above: the next part, on another machine, would begin behind blocks that stay on disk."""
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
    agree(varied(uneven(shapes), wire=WIRE, movement=movement), turns(199_822, closed_loop=False))


@examples(25)
@given(
    movement=lookahead,
    shape=st.sampled_from([(90, 60, 400), (100, 40, 60)]),
    lookup=st.sampled_from(["local", "cluster"]),
    closed_loop=st.booleans(),
    seed=st.integers(1, 99),
)
def test_an_abort_leaves_its_prefetch_alone(movement, shape, lookup, closed_loop, seed):
    settings = varied(cluster(shape, 2), wire=WIRE, movement=replace(movement, lookup=lookup))
    agree(settings, with_aborts(seed, closed_loop=closed_loop))


@examples(20)
@given(
    movement=lookahead,
    path=st.sampled_from(["gpu-direct", "via-cpu"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    roles=st.sampled_from(["pd", "ppd", "pbd"]),
    closed_loop=st.booleans(),
    seed=st.integers(1, 10**6),
)
def test_prefetches_with_hand_overs_agree(movement, path, transfer, roles, closed_loop, seed):
    settings = pools(roles, HandoverSettings(path=path, transfer=transfer), tiers=(80, 50, 400))
    settings = replace(settings, movement=movement)
    agree(settings, turns(seed, closed_loop, requests=40))


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
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kvcache_sim.serving.native_arrivals._AT_A_TIME", size)
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
