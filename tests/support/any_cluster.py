"""Clusters with every option of a tree's cache, its movement, channels, hand-over and scheduler, at random."""

from dataclasses import replace

from hypothesis import strategies as st
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.settings import MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import (
    ClusterSettings,
    HandoverSettings,
    MachineSettings,
    ReplicaSettings,
    RouterSettings,
)

from support.clusters import table
from support.drawn_settings import kinds as kinds_of_channels
from support.drawn_settings import lookahead, replicas, trees
from support.spec_routers import ALL_ROUTERS as SPEC_ROUTERS

RATES = {"gpu->cpu": 4, "cpu->gpu": 5, "cpu->disk": 1, "disk->cpu": 2}
#: Movement without prefetches, or with those that a fetch policy goes with.
fetching = st.one_of(
    st.tuples(
        st.sampled_from(["always", "never", "cheaper", "split"]), st.sampled_from(["none", *PREFETCHES])
    ),
    st.tuples(st.sampled_from(["best-effort", "wait", "timeout"]), st.just("queued")),
)
#: (layer pipelining, layers of a read buffer): a buffer is for layers that arrive one by one.
arriving = st.sampled_from([(False, None), (True, None), (True, None), (True, 1), (True, 8)])


@st.composite
def movements(draw) -> MovementSettings:
    """Every option of the movement of KV."""
    (fetch, prefetch), (pipelining, buffers) = draw(fetching), draw(arriving)
    return replace(
        draw(lookahead),
        fetch=fetch,
        prefetch=prefetch,
        write_selective_uses=draw(st.integers(2, 3)),
        layer_pipelining=pipelining,
        read_buffer_layers=buffers,
        lookup=draw(st.sampled_from(["local", "cluster", "cluster"])),
        remote_disk=draw(st.sampled_from(["direct", "staged"])),
    )


@st.composite
def engines(draw) -> ReplicaSettings:
    """Every option of kvsim's own scheduler."""
    return replace(
        draw(replicas),
        max_model_len=None,
        duplicate_prefill=draw(st.sampled_from(["recompute", "wait"])),
        copy_submit_ns=draw(st.sampled_from([0, 0, 0, 2_000])),
        copy_gpu_share=draw(st.sampled_from([0.0, 0.0, 0.0, 0.25])),
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
    block = draw(st.sampled_from([16, 32, 64]))
    how, shared = draw(kinds_of_channels), draw(st.booleans())
    channels, machines = {}, []
    for m, tiers in enumerate(kinds):
        names = ("gpu", "cpu", "disk")[: len(tiers)]
        edges = {e: ("all" if shared else f"{e} {m}") for e in RATES if set(e.split("->")) <= set(names)}
        for edge, name in edges.items():
            channels[name] = ChannelSettings(name, RATES[edge] * 10**9, **how)
        sizes = (None if size is None else size * 64 // block for size in tiers)
        built = tuple(TierSettings(n, c) for n, c in zip(names, sizes, strict=True))
        machines.append(MachineSettings(built, table(), draw(engines()), edges))
    machines, handover = draw(handing_over(machines))
    return ClusterSettings(
        tuple(machines),
        channels,
        replace(draw(trees), block_size_tokens=block, enabled=True),
        draw(movements()),
        NetworkSettings(default=replace(ChannelSettings("net", 3 * 10**9), **how)),
        RouterSettings(draw(st.sampled_from([*SPEC_ROUTERS, *SPEC_ROUTERS, *ROUTERS]))),
        handover,
    )
