"""Clusters with every option of a tree's cache, its movement, channels, hand-over and scheduler, at random."""

from dataclasses import replace

from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.serving.queue import ORDERS
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import (
    ClusterSettings,
    HandoverSettings,
    MachineSettings,
    ReplicaSettings,
    RouterSettings,
)

from support.clusters import table
from support.spec_routers import ALL_ROUTERS as SPEC_ROUTERS

RATES = {"gpu->cpu": 4, "cpu->gpu": 5, "cpu->disk": 1, "disk->cpu": 2}
WRITES = st.sampled_from(["back", "through", "through-sync", "selective"])
FETCHES = ["always", "never", "cheaper", "split"]
WAITING_FETCHES = ["best-effort", "wait", "timeout"]
#: Every option of the movement of KV, each value as likely.
movement = st.fixed_dictionaries(
    {
        "write": st.fixed_dictionaries(
            {"gpu": WRITES, "cpu": st.sampled_from(["back", "through", "selective"])}
        ),
        "write_selective_uses": st.integers(2, 3),
        "fetch_timeout_ns": st.sampled_from([0, 3_000_000, 10**9]),
        "prefetch_share": st.sampled_from([0.01, 0.5, 1.0]),
        "prefetch_lead_ns": st.sampled_from([0, 50_000_000, 10**9]),
        "lookup": st.sampled_from(["local", "cluster", "cluster"]),
        "remote_disk": st.sampled_from(["direct", "staged"]),
        "exclusive": st.sampled_from(
            [frozenset(), frozenset({"gpu"}), frozenset({"cpu"}), frozenset({"gpu", "cpu"})]
        ),
    }
)
fetching = st.one_of(
    st.tuples(st.sampled_from(FETCHES), st.sampled_from(["none", "queued", "session"])),
    st.tuples(st.sampled_from(WAITING_FETCHES), st.just("queued")),
)
#: (layer pipelining, layers of a read buffer): a buffer is for layers that arrive one by one.
arriving = st.sampled_from([(False, None), (True, None), (True, None), (True, 1), (True, 8)])
cache = st.fixed_dictionaries(
    {
        "block_size_tokens": st.sampled_from([16, 32, 64]),
        "cache_output": st.booleans(),
        "touch": st.sampled_from(["release", "release", "admission"]),
        "full_hit": st.sampled_from(["prefill-remainder", "skip-prefill"]),
        "discard_on_finish": st.sampled_from([False, False, False, True]),
        "admission": st.sampled_from(["all", "all", "prompt"]),
        "lookup_ns": st.sampled_from([0, 100_000]),
        "scheduler_aware_window": st.sampled_from([0, 0, 3]),
    }
)
replica = st.fixed_dictionaries(
    {
        "max_num_batched_tokens": st.sampled_from([64, 512, 4096]),
        "max_num_seqs": st.sampled_from([1, 2, 8]),
        "queue_order": st.sampled_from(["fcfs", *ORDERS]),
        "duplicate_prefill": st.sampled_from(["recompute", "wait"]),
        "step_overhead_ns": st.sampled_from([0, 50_000]),
        "async_scheduling": st.sampled_from(["none", "none", "length", "stop-token"]),
        "client_offset_ns": st.sampled_from([0, 0, 7_000_000]),
        "copy_submit_ns": st.sampled_from([0, 0, 0, 2_000]),
        "copy_gpu_share": st.sampled_from([0.0, 0.0, 0.0, 0.25]),
    }
)
channel = st.fixed_dictionaries(
    {
        "latency_ns": st.sampled_from([0, 20_000, 5_000_000]),
        "piece_overhead_ns": st.sampled_from([0, 1_000]),
        "piece_gap_ns": st.sampled_from([0, 2_000]),
        "piece_submit_ns": st.sampled_from([0, 3_000]),
        "sharing": st.sampled_from(["fifo", "fifo", "fair"]),
        "priority": st.sampled_from(["in-order", "in-order", "loads-first"]),
        "latency_occupies": st.booleans(),
    }
)
#: Blocks of 64 tokens: below the largest request, about it, and above.
gpu_blocks = st.one_of(st.integers(1, 8), st.integers(12, 24), st.integers(16, 32), st.integers(24, 60))
lower_blocks = st.one_of(st.just(1), st.integers(2, 12), st.integers(20, 60), st.integers(60, 200), st.none())
machine_tiers = st.tuples(gpu_blocks, st.lists(lower_blocks, max_size=2)).map(lambda t: (t[0], *t[1]))


@st.composite
def handing_over(draw, machines: list[MachineSettings]) -> tuple[list[MachineSettings], HandoverSettings]:
    """Give the machines roles, now and then, and say how requests are handed over."""
    if len(machines) < 2 or draw(st.booleans()):
        return machines, HandoverSettings()
    roles = ["prefill", *draw(st.lists(st.sampled_from(["both", "decode"]), min_size=2, max_size=2))]
    given = [replace(machine, role=role) for machine, role in zip(machines, roles, strict=False)]
    paths = ["gpu-direct", "via-cpu"] if all(len(m.tiers) > 1 for m in machines) else ["gpu-direct"]
    how = HandoverSettings(
        draw(st.sampled_from(paths)),
        draw(st.sampled_from(["at-end", "layer-by-layer"])),
        draw(st.sampled_from(["decode", "prefill"])),
        draw(st.sampled_from(list(ROUTERS))),
    )
    return given, how


@st.composite
def clusters(draw) -> ClusterSettings:
    kinds = draw(st.lists(machine_tiers, min_size=draw(st.sampled_from([1, 2, 2, 3])), max_size=3))
    per_64 = 64 // (own_cache := draw(cache))["block_size_tokens"]
    how, shared = draw(channel), draw(st.booleans())
    channels, machines = {}, []
    for m, tiers in enumerate(kinds):
        names = ("gpu", "cpu", "disk")[: len(tiers)]
        edges = {e: ("all" if shared else f"{e} {m}") for e in RATES if set(e.split("->")) <= set(names)}
        for edge, name in edges.items():
            channels[name] = ChannelSettings(name, RATES[edge] * 10**9, **how)
        sizes = (None if size is None else size * per_64 for size in tiers)
        built = tuple(TierSettings(n, c) for n, c in zip(names, sizes, strict=True))
        machines.append(MachineSettings(built, table(), ReplicaSettings(**draw(replica)), edges))
    fetch, prefetch = draw(fetching)
    moves = draw(movement)
    moves["layer_pipelining"], moves["read_buffer_layers"] = draw(arriving)
    machines, handover = draw(handing_over(machines))
    return ClusterSettings(
        tuple(machines),
        channels,
        CacheSettings(**own_cache),
        MovementSettings(fetch=fetch, prefetch=prefetch, **moves),
        NetworkSettings(default=replace(ChannelSettings("net", 3 * 10**9), **how)),
        RouterSettings(draw(st.sampled_from([*SPEC_ROUTERS, *SPEC_ROUTERS, *ROUTERS]))),
        handover,
    )
