"""Channels that are chosen, shared or served layer by layer: the core moves KV as the specification does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.serving.membership.plan import Flush, MembershipPlan, TierLoss
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import OPEN_LOOP
from support.agreement import agree, columns
from support.clusters import cluster, table, varied
from support.drawn_settings import kinds, movements, replicas, trees
from support.examples import examples
from support.lookahead import assert_same_by_the_clock
from support.pools import channel, pools
from support.traces import only, random_trace


def on_rails(settings, rails, scope, rates, kind, per_s=10**9):
    """Put each edge of a cluster on several parallel channels. ``scope``: an edge, an edge and its
    opposite, a machine, or all machines share them. ``rates`` are in units of ``per_s`` bytes a second."""
    channels, machines = dict(settings.channels), []
    for number, machine in enumerate(settings.machines):
        own = {}
        for edge in machine.edge_channels:
            both = "-".join(sorted(edge.split("->")))
            whose = {
                "edge": f"{edge} {number}",
                "both": f"{both} {number}",
                "machine": f"{number}",
                "all": "",
            }
            own[edge] = tuple(f"rail {k} {whose[scope]}" for k in range(rails))
        for names in own.values():
            for k, name in enumerate(names):
                rate = rates[k % len(rates)] * per_s
                channels[name] = replace(ChannelSettings(name, rate, 20_000, 1_000), **kind)
        first = {edge: names[0] for edge, names in own.items()}
        machines.append(replace(machine, edge_channels=first, edge_rails=own if rails > 1 else {}))
    used = {name for machine in machines for name in machine.edge_channels.values()}
    used |= {name for machine in machines for names in machine.edge_rails.values() for name in names}
    channels = {name: one for name, one in channels.items() if name in used}
    return replace(settings, machines=tuple(machines), channels=channels)


scopes = st.sampled_from(["edge", "both", "machine", "all"])
plain = st.fixed_dictionaries(
    {"latency_occupies": st.booleans(), "piece_submit_ns": st.sampled_from([0, 4_000])}
)


@examples(25)
@given(
    replica=replicas,
    cache=trees,
    movement=movements,
    choice=st.sampled_from(["emptiest", "emptiest", "emptiest", "assigned"]),
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    rails=st.integers(2, 3),
    scope=scopes,
    rates=st.sampled_from([(1,), (3, 1), (1, 2, 4)]),
    kind=st.one_of(plain, plain, kinds),
    lookup=st.sampled_from(["local", "local", "cluster"]),
    machines=st.sampled_from([1, 2, 3]),
    seed=st.integers(1, 10**6),
)
def test_channels_that_are_chosen_agree(
    replica, cache, movement, choice, shape, rails, scope, rates, kind, lookup, machines, seed
):
    settings = on_rails(varied(cluster(shape, machines), replica), rails, scope, rates, kind)
    settings = replace(
        settings,
        cache=cache,
        movement=replace(movement, channel_choice=choice, lookup=lookup if machines > 1 else "local"),
        network=NetworkSettings(default=replace(settings.network.default, **kind)),
    )
    trace = random_trace(seed, requests=40, sessions=7)
    agree(settings, trace)


def test_a_write_that_waited_chooses_its_channel_when_it_is_sent():
    test_channels_that_are_chosen_agree.hypothesis.inner_test(
        replica=ReplicaSettings(max_num_batched_tokens=64, max_num_seqs=1),
        cache=CacheSettings(block_size_tokens=16),
        movement=MovementSettings(
            write={"gpu": "back", "cpu": "through"}, write_selective_uses=1, layer_pipelining=False
        ),
        choice="emptiest",
        shape=(100, 40, 60),
        rails=2,
        scope="edge",
        rates=(1,),
        kind={"piece_submit_ns": 0, "latency_occupies": False},
        lookup="local",
        machines=1,
        seed=2,
    )


@examples(40)
@given(
    replica=replicas,
    movement=movements,
    roles=st.sampled_from(["pd", "ppd", "pdd", "pb", "bpd", "dpbp"]),
    tiers=st.sampled_from([(60,), (90,), (90, 60), (90, 200), (100, 60, 100)]),
    path=st.sampled_from(["gpu-direct", "via-cpu", "via-cpu"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    first_token=st.sampled_from(["prefill", "decode"]),
    rails=st.sampled_from([1, 1, 2, 3]),
    scope=scopes,
    wires=st.sampled_from(["pairs", "one", "edges"]),
    rates=st.sampled_from([(1,), (3, 1), (1, 2, 4)]),
    kind=st.one_of(st.just({}), plain, kinds, kinds),
    buffers=st.sampled_from([None, None, None, 1, 3]),
    lookup=st.sampled_from(["local", "local", "cluster"]),
    open_loop=st.booleans(),
    seed=st.integers(1, 10**6),
)
def test_hand_overs_over_channels_of_every_kind_agree(
    replica,
    movement,
    roles,
    tiers,
    path,
    transfer,
    first_token,
    rails,
    scope,
    wires,
    rates,
    kind,
    buffers,
    lookup,
    open_loop,
    seed,
):
    wire = replace(channel(bandwidth_bytes_per_s=10**7 * (1 + seed % 5)), **kind)
    handover = HandoverSettings(path if len(tiers) > 1 else "gpu-direct", transfer, first_token)
    settings = pools(roles, replace(handover, network=NetworkSettings(default=wire)), tiers, table())
    settings = on_rails(varied(settings, replica), rails, scope, rates, kind, 10**7)
    channels, pairs = dict(settings.channels), {}
    if wires != "pairs":
        # all hand-overs on one channel, maybe on one that an edge of a machine takes too
        name = min(channels) if wires == "edges" and channels else "wire"
        channels.setdefault(name, replace(wire, name=name))
        numbers = range(len(roles))
        pairs = {(a, b): name for a in numbers for b in numbers if a != b}
    network = NetworkSettings(pairs, wire)
    if len(tiers) > 1:
        layers = buffers if movement.layer_pipelining else None
        movement = replace(movement, lookup=lookup, channel_choice="emptiest", read_buffer_layers=layers)
        settings = replace(
            settings, movement=movement, network=NetworkSettings(default=replace(wire, name="net"))
        )
    handover = replace(settings.handover, network=network)
    settings = replace(settings, channels=channels, handover=handover)
    trace = random_trace(seed, requests=30, sessions=7)
    trace.input_tokens[:] = trace.input_tokens.clip(max=500)
    if open_loop:
        trace.think_ns[:] = OPEN_LOOP
    agree(settings, trace)


@examples(15)
@given(
    replica=replicas,
    cache=trees,
    movement=movements,
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    kind=kinds,
    scope=scopes,
    buffers=st.sampled_from([None, None, 2]),
    machines=st.sampled_from([1, 3]),
    at_ms=st.lists(st.integers(1, 8_000), min_size=3, max_size=12),
    seed=st.integers(1, 10**6),
)
def test_lost_copies_agree_on_channels_served_layer_by_layer(
    replica, cache, movement, shape, kind, scope, buffers, machines, at_ms, seed
):
    settings = on_rails(varied(cluster(shape, machines), replica), 1, scope, (1, 2), kind)
    tiers, flushes = [], []
    for k, ms in enumerate(sorted(at_ms)):
        if k % 3:
            tiers.append(TierLoss(ms * 10**6, (seed + k) % machines, (seed + k) % len(shape)))
        else:
            flushes.append(Flush(ms * 10**6, None if k % 2 else seed % machines))
    settings = replace(
        settings,
        cache=cache,
        channels={**settings.channels, "unused": ChannelSettings("unused", 10**9, sharing="fair")},
        movement=replace(movement, read_buffer_layers=buffers if movement.layer_pipelining else None),
        membership=MembershipPlan(tier_losses=tuple(tiers), flushes=tuple(flushes)),
    )
    assert_same_by_the_clock(settings, random_trace(seed, requests=40, sessions=7))


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
@pytest.mark.parametrize("buffers", [None, 2])
def test_tiers_that_are_lost_one_by_one_at_rest_are_flushed(sharing, buffers):
    settings = cluster((90, 60, 400), 2, sharing=sharing)
    settings = replace(settings, movement=replace(settings.movement, read_buffer_layers=buffers))
    trace = random_trace(3, requests=40, sessions=7)
    trace = replace(trace, arrival_ns=np.arange(40) // 4 * 10**11)
    at_ns = int(trace.arrival_ns[20]) - 10**9
    tiers = tuple(TierLoss(at_ns, machine, tier) for machine in range(2) for tier in range(3))
    plans = MembershipPlan(tier_losses=tiers), MembershipPlan(flushes=(Flush(at_ns, None),))
    lost, flushed = (columns(simulate(replace(settings, membership=plan), trace).requests) for plan in plans)
    assert lost == flushed
    alone = columns(simulate(settings, only(trace, list(range(20, 40)))).requests)
    assert flushed["cached_prefix_length_used"][20:] == alone["cached_prefix_length_used"]
    assert flushed["first_token_ns"][20:] == alone["first_token_ns"]
