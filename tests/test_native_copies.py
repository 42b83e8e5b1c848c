"""Copies that cost the steps: the core charges them as a model over the specification does."""

from dataclasses import replace

from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.serving.settings import HandoverSettings
from kvcache_sim.simulation import simulate
from pools import pools
from support.agreement import agree
from support.clusters import cluster, varied
from support.drawn_settings import kinds, movements, replicas, trees
from support.traces import random_trace

charges = st.sampled_from([(2_000, 0.0), (50_000, 0.0), (0, 0.25), (0, 0.003), (1_000, 0.7)])


def charged(settings, charge):
    """The same with what a piece takes of the CPU, and its copy of the GPU."""
    submit_ns, share = charge
    machines = (
        replace(m, replica=replace(m.replica, copy_submit_ns=submit_ns, copy_gpu_share=share))
        for m in settings.machines
    )
    return replace(settings, machines=tuple(machines))


@examples(40)
@given(
    replica=replicas,
    cache=trees,
    movement=movements,
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    kind=st.one_of(st.just({}), kinds),
    machines=st.sampled_from([1, 3]),
    charge=charges,
    seed=st.integers(1, 99),
)
def test_copies_cost_the_same_steps(replica, cache, movement, shape, kind, machines, charge, seed):
    plain = cluster(shape, machines, latency_occupies=seed % 2 == 0)
    settings = varied(plain, replica, kind, cache=cache, movement=movement)
    agree(charged(settings, charge), random_trace(seed, requests=40, sessions=7))


@examples(15)
@given(
    movement=movements,
    wire=st.sampled_from([(3 * 10**9, 30_000), (5 * 10**8, 2_000_000)]),
    kind=st.one_of(st.just({}), kinds),
    charge=charges,
    seed=st.integers(1, 99),
)
def test_reads_from_other_machines_cost_the_same_steps(movement, wire, kind, charge, seed):
    movement = replace(movement, lookup="cluster")
    settings = varied(cluster((90, 60, 400), 3), kind=kind, wire=wire, movement=movement)
    agree(charged(settings, charge), random_trace(seed, requests=40, sessions=7))


@examples(30)
@given(
    path=st.sampled_from(["gpu-direct", "via-cpu"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    roles=st.sampled_from(["pd", "ppd", "pdd", "pbd"]),
    charge=charges,
    seed=st.integers(1, 99),
)
def test_hand_overs_cost_the_same_steps(path, transfer, roles, charge, seed):
    tiers = (80, 50) if path == "via-cpu" else (80,)
    settings = pools(roles, HandoverSettings(path=path, transfer=transfer), tiers=tiers)
    agree(charged(settings, charge), random_trace(seed, requests=40, sessions=7))


@examples(20)
@given(st.sampled_from([(60, 40), (90, 60, 400)]), st.sampled_from([1, 2]), st.integers(1, 99))
def test_copies_of_no_cost_change_nothing(shape, layers, seed):
    """Even with read buffers, where a step's times are known after its start: later copies do not delay it."""
    plain = cluster(shape)
    settings = replace(plain, movement=replace(plain.movement, read_buffer_layers=layers))
    trace = random_trace(seed, requests=60, sessions=7)
    free = simulate(charged(settings, (0, 0.0)), trace)
    assert simulate(charged(settings, (0, 1e-300)), trace).digest_events == free.digest_events
