"""Features of serving on machines of every kind: the core agrees with the specification, at random.

Kinds: machines with lower tiers, machines that read each other, machines that hand over. What the core has and no
seed asks for (copies that cost the steps, prefetches, clients that abort, a pool that machines share) is added to the
specification by models.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import PoolSettings
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings
from kvcache_sim.simulation import simulate
from support.agreement import agree
from support.clusters import cluster, uneven, varied
from support.clusters import reading_each_other as reading
from support.drawn_settings import NATIVE, kinds, movements, pool_moves, replicas, shared_pools, trees, wires
from support.drawn_settings import lookahead as prefetching
from support.examples import examples
from support.pools import pools
from support.product.machines import Slowdown
from support.recorded import assert_recording_changes_nothing
from support.shared_pool import sharing
from support.traces import random_trace, turns, with_aborts

SHAPES = [(90, 200), (90, 60, 400), (90, 60), (100, 40, 60), (90, 70, 90)]
any_kind = st.one_of(st.just({}), kinds)


@st.composite
def tiered(draw, movement):
    plain = cluster(
        draw(st.sampled_from(SHAPES)), draw(st.sampled_from([1, 1, 3])), latency_occupies=draw(st.booleans())
    )
    return varied(plain, draw(replicas), draw(any_kind), cache=draw(trees), movement=movement)


@st.composite
def reading_each_other(draw, movement):
    shapes = draw(st.lists(st.sampled_from([(90,), *SHAPES]), min_size=2, max_size=4))
    remote_disk = draw(st.sampled_from(["direct", "staged"]))
    movement = replace(movement, lookup="cluster", remote_disk=remote_disk)
    plain = uneven(shapes, latency_occupies=draw(st.booleans()))
    return varied(plain, draw(replicas), draw(any_kind), draw(wires), cache=draw(trees), movement=movement)


@st.composite
def handing_over(draw, movement):
    path = draw(st.sampled_from(["gpu-direct", "gpu-direct", "via-cpu"]))
    transfer = draw(st.sampled_from(["at-end", "layer-by-layer"]))
    first_token = draw(st.sampled_from(["decode", "prefill"]))
    handover = HandoverSettings(
        path=path,
        transfer=transfer,
        first_token=first_token,
        router=draw(st.sampled_from([*NATIVE, "random"])),
    )
    replica = {"async_scheduling": draw(st.sampled_from(["none", "length", "stop-token"]))}
    replica |= {"max_num_batched_tokens": draw(st.sampled_from([128, 512]))}
    tiers = draw(
        st.sampled_from([(300, 50), (80, 50), (80, 50, 400), *[(80,), (300,)] * (path != "via-cpu")])
    )
    settings = pools(draw(st.sampled_from(["pd", "ppd", "pdd", "ppddd", "pbd"])), handover, tiers, **replica)
    blocks = draw(st.lists(st.sampled_from([40, 80, 300]), min_size=5, max_size=5))
    machines = [
        replace(machine, tiers=(replace(machine.tiers[0], capacity_blocks=own), *machine.tiers[1:]))
        for machine, own in zip(settings.machines, blocks, strict=False)
    ]
    return replace(
        settings, machines=tuple(machines), movement=movement if len(tiers) > 1 else settings.movement
    )


MACHINES = {"tiers": tiered, "other machines": reading_each_other, "hand-overs": handing_over}


def charged(settings, charge):
    """The same with what a piece takes of the CPU, and its copy of the GPU."""
    submit_ns, share = charge
    machines = (
        replace(m, replica=replace(m.replica, copy_submit_ns=submit_ns, copy_gpu_share=share))
        for m in settings.machines
    )
    return replace(settings, machines=tuple(machines))


@st.composite
def slowdowns(draw):
    """Spans of time one after another, each with a share of the rate."""
    until, spans = 0, []
    for _ in range(draw(st.integers(1, 3))):
        begin = until + draw(st.integers(1, 400)) * 10**7
        until = begin + draw(st.integers(1, 400)) * 10**7
        spans.append(Slowdown(begin, until, draw(st.sampled_from([0, 1_000, 100_000, 333_333]))))
    return spans


charges = st.sampled_from([(2_000, 0.0), (50_000, 0.0), (0, 0.25), (0, 0.003), (1_000, 0.7)])
#: Of each feature the movements, and whether clients abort.
FEATURES = {
    "nothing more": (movements, False),
    "costly copies": (movements, False),
    "read buffers": (movements, False),
    "slow channels": (movements, False),
    "prefetches": (prefetching, False),
    "aborts": (movements, True),
    "prefetches and aborts": (prefetching, True),
    "shared pool": (pool_moves, False),
    "shared pool and aborts": (pool_moves, True),
}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("machines", MACHINES)
@examples(20)
@given(data=st.data())
def test_a_feature_agrees_on_machines_of_every_kind(machines, feature, data):
    moves, aborts = FEATURES[feature]
    settings = data.draw(MACHINES[machines](data.draw(moves)))
    if feature == "costly copies":
        settings = charged(settings, data.draw(charges))
    if feature == "read buffers" and settings.movement.layer_pipelining:
        layers = data.draw(st.sampled_from([1, 2, 4]))
        settings = replace(settings, movement=replace(settings.movement, read_buffer_layers=layers))
    if feature == "slow channels":
        slow = tuple(data.draw(slowdowns()))
        channels = {name: replace(one, slowdowns=slow) for name, one in settings.channels.items()}
        settings = replace(settings, channels=channels)
    if "pool" in feature and all(len(machine.tiers) > 1 for machine in settings.machines):
        settings = sharing(settings, data.draw(shared_pools), data.draw(wires), data.draw(any_kind))
    closed_loop, seed = data.draw(st.booleans()), data.draw(st.integers(1, 10**6))
    agree(settings, with_aborts(seed, closed_loop=closed_loop) if aborts else turns(seed, closed_loop, 40))
    if feature == "nothing more":
        assert_recording_changes_nothing(settings, turns(seed, closed_loop, 40))


@examples(20)
@given(st.sampled_from([(60, 40), (90, 60, 400)]), st.sampled_from([1, 2]), st.integers(1, 99))
def test_copies_of_no_cost_change_nothing(shape, layers, seed):
    """Even with read buffers, where a step's times are known after its start: later copies do not delay it."""
    plain = cluster(shape)
    settings = replace(plain, movement=replace(plain.movement, read_buffer_layers=layers))
    trace = random_trace(seed, requests=60, sessions=7)
    free = simulate(charged(settings, (0, 0.0)), trace)
    assert simulate(charged(settings, (0, 1e-300)), trace).digest_events == free.digest_events


@pytest.mark.parametrize(("machines", "pooled", "seed"), [(2, True, 150), (3, False, 958), (3, True, 1094)])
def test_a_prefetch_ends_where_space_for_its_first_part_has_evicted_the_next(machines, pooled, seed):
    settings = reading((90, 60, 60), machines, prefetch="queued", prefetch_share=1.0)
    if pooled:
        settings = replace(settings, movement=replace(settings.movement, lookup="local"))
        settings = sharing(settings, PoolSettings(capacity_blocks=None), (10**11, 0))
    for closed_loop in (False, True):
        agree(settings, turns(seed, closed_loop, 40))


@pytest.mark.parametrize("seed", [61, 221])
def test_a_prefetch_reads_no_other_machine_behind_blocks_that_it_has_evicted(seed):
    movement = {"prefetch": "session", "prefetch_lead_ns": 0, "fetch": "wait"}
    settings = reading((90, 60, 400), 3, write={"gpu": "back", "cpu": "selective"}, **movement)
    settings = replace(settings, movement=replace(settings.movement, lookup="local"))
    agree(sharing(settings, PoolSettings(capacity_blocks=None), (10**11, 0)), turns(seed, False, 40))


@pytest.mark.parametrize("seed", [554, 1148])
def test_a_run_that_waits_for_space_gets_the_space_of_blocks_that_are_not_loaded(seed):
    """Blocks behind the run are held at first, on the tier that it is staged on."""
    settings = varied(cluster((70, 20, 100), 3), ReplicaSettings(512, 1))
    write = {"gpu": "selective", "cpu": "back"}
    agree(replace(settings, movement=replace(settings.movement, write=write)), turns(seed, False, 40))
