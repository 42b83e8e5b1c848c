"""Requests that are given up natively: wherever they are, the core lets them go as the scheduler in Python does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings, RouterSettings
from pools import pools
from support.clusters import BLOCK, cluster
from support.drawn_settings import NATIVE, engines, kinds, movements, replicas, trees
from support.traces import with_aborts
from test_front_door import agree, told
from test_native_serving import told_alike

MS = 1_000_000
ABORTED = STATUSES.index("aborted")
_WAY = ("status", "first_token_ns", "prefill_ns", "fetch_ns", "num_tokens_actually_prefilled")


@examples(60)
@given(
    replica=replicas,
    cache=st.one_of(trees, trees, engines),
    blocks=st.sampled_from([70, 110, 400]),
    machines=st.sampled_from([1, 1, 2]),
    closed_loop=st.booleans(),
    seed=st.integers(1, 99),
)
def test_the_core_lets_go_as_the_scheduler_in_python(replica, cache, blocks, machines, closed_loop, seed):
    settings = cluster((blocks,), machines)
    built = tuple(replace(machine, replica=replica) for machine in settings.machines)
    told_alike(replace(settings, cache=cache, machines=built), with_aborts(seed, closed_loop=closed_loop))


@examples(40)
@given(
    scheduler=st.sampled_from(["vllm", "sglang"]),
    ahead=st.sampled_from(["none", "length", "stop-token"]),
    budget=st.sampled_from([64, 512]),
    seqs=st.sampled_from([2, 8]),
    order=st.sampled_from(["fcfs", "priority"]),
    blocks=st.sampled_from([35, 70, 400]),
    lookup_ns=st.sampled_from([0, 2 * MS]),
    seed=st.integers(1, 99),
)
def test_engines_own_schedulers_let_go_alike(scheduler, ahead, budget, seqs, order, blocks, lookup_ns, seed):
    order = order if scheduler == "vllm" else "fcfs"
    replica = ReplicaSettings(
        budget,
        seqs,
        queue_order=order,
        async_scheduling=ahead,
        scheduler=scheduler,
        client_offset_ns=lookup_ns,
    )
    settings = cluster((blocks,))
    machine = replace(settings.machines[0], replica=replica)
    cache = CacheSettings(block_size_tokens=BLOCK, semantics=scheduler, lookup_ns=lookup_ns)
    told_alike(replace(settings, machines=(machine,), cache=cache), with_aborts(seed))


@examples(40)
@given(
    replica=replicas,
    cache=trees,
    movement=movements,
    shape=st.sampled_from([(90, 200), (90, 60, 400), (100, 40, 60)]),
    kind=st.one_of(st.just({}), kinds),
    machines=st.sampled_from([1, 3]),
    seed=st.integers(1, 99),
)
def test_what_loads_leaves_when_its_kv_has_come(replica, cache, movement, shape, kind, machines, seed):
    settings = cluster(shape, machines, latency_occupies=seed % 2 == 0)
    built = tuple(replace(machine, replica=replica) for machine in settings.machines)
    channels = {name: replace(one, **kind) for name, one in settings.channels.items()}
    settings = replace(settings, cache=cache, movement=movement, machines=built, channels=channels)
    told_alike(settings, with_aborts(seed))


@examples(15)
@given(
    movement=movements,
    wire=st.sampled_from([(3 * 10**9, 30_000), (5 * 10**8, 2_000_000)]),
    seed=st.integers(1, 99),
)
def test_machines_that_read_each_other_let_go_alike(movement, wire, seed):
    settings = cluster((90, 60, 400), 3)
    settings = replace(
        settings,
        movement=replace(movement, lookup="cluster"),
        network=NetworkSettings(default=ChannelSettings("net", *wire)),
    )
    told_alike(settings, with_aborts(seed))


handovers = st.builds(
    HandoverSettings,
    path=st.sampled_from(["gpu-direct", "gpu-direct", "via-cpu"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    first_token=st.sampled_from(["decode", "prefill"]),
    router=st.sampled_from([*NATIVE, "random"]),
)


@examples(60)
@given(
    handover=handovers,
    roles=st.sampled_from(["pd", "ppd", "pdd", "ppddd", "pbd"]),
    ahead=st.sampled_from(["none", "length", "stop-token"]),
    budget=st.sampled_from([128, 512]),
    blocks=st.lists(st.sampled_from([40, 80, 300]), min_size=5, max_size=5),
    seed=st.integers(1, 99),
)
def test_what_is_handed_over_leaves_after_its_first_step_there(handover, roles, ahead, budget, blocks, seed):
    tiers = (300, 50) if handover.path == "via-cpu" else (300,)
    replica = {"async_scheduling": ahead, "max_num_batched_tokens": budget}
    settings = pools(roles, handover, tiers=tiers, **replica)
    machines = [
        replace(machine, tiers=(replace(machine.tiers[0], capacity_blocks=own), *machine.tiers[1:]))
        for machine, own in zip(settings.machines, blocks, strict=False)
    ]
    told_alike(replace(settings, machines=tuple(machines)), with_aborts(seed))


@examples(40)
@given(
    router=st.sampled_from(NATIVE),
    semantics=st.sampled_from(["tree", "tree", "vllm", "sglang"]),
    tiers=st.sampled_from([(35,), (110,), (90, 60, 200)]),
    machines=st.integers(1, 5),
    size=st.sampled_from([1, 7, 60]),
    seed=st.integers(1, 99),
)
def test_clients_leave_natively_where_requests_come_so(router, semantics, tiers, machines, size, seed):
    tiers = tiers if semantics == "tree" else tiers[:1]
    cache = CacheSettings(block_size_tokens=BLOCK, semantics=semantics)
    settings = replace(cluster(tiers, machines), router=RouterSettings(router), cache=cache)
    trace = with_aborts(seed, requests=60)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kvcache_sim.serving.front_door._AT_A_TIME", size)
        agree(settings, trace)
    if semantics == "tree":
        assert told(settings, trace)[1]["digests"] == told(settings, trace, backend="python")[1]["digests"]


@examples(20)
@given(
    handover=handovers.filter(lambda how: how.router != "random"),
    roles=st.sampled_from(["pd", "ppddd", "pbd"]),
    seed=st.integers(1, 99),
)
def test_clients_of_pools_leave_natively_too(handover, roles, seed):
    tiers = (80, 50) if handover.path == "via-cpu" else (80,)
    agree(pools(roles, handover, tiers=tiers), with_aborts(seed))


def test_every_way_to_leave_is_tried():
    """The traces above give requests up while they wait, load, compute and decode."""
    settings = cluster((90, 60, 400))
    settings = replace(settings, movement=MovementSettings(fetch="always", layer_pipelining=False))
    ways = set()
    for seed in range(3, 20, 4):
        table, _ = told_alike(settings, with_aborts(seed, requests=120))
        rows = zip(*(table["requests", name] for name in _WAY), strict=True)
        for status, first_token_ns, prefill_ns, fetch_ns, left in rows:
            if status == ABORTED:
                loaded = "loading" if fetch_ns else "computing" if prefill_ns or left else "waiting"
                ways.add("decoding" if first_token_ns >= 0 else loaded)
    assert ways == {"waiting", "loading", "computing", "decoding"}
