"""Crowded runs of models with cache groups."""

from dataclasses import replace

from hypothesis import strategies as st
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.workload.trace import Trace

from support.clusters import cluster
from support.group_layouts import layouts
from support.traces import random_trace


@st.composite
def groups(draw) -> GroupSettings:
    """Groups of blocks of 8 to 192 tokens, which need not divide the trace's, and any retention."""
    drawn = draw(layouts())
    scaled = tuple(
        replace(g, block_size_tokens=8 * g.block_size_tokens, reach_tokens=8 * g.reach_tokens)
        for g in drawn.groups
    )
    layout = replace(drawn, groups=scaled)
    align = layout.scheduler_block_size
    interval = draw(st.sampled_from([0, 0, None, align, 3 * align]))
    return GroupSettings("drawn", layout, draw(st.sampled_from([64, 512, 2048])), interval)


def settings_of(
    drawn: GroupSettings, cache: CacheSettings, replica: ReplicaSettings, blocks: int, machines: int
):
    settings = cluster((blocks,), machines)
    cache = replace(
        cache, semantics="vllm", block_size_tokens=drawn.layout.scheduler_block_size, groups=drawn
    )
    replica = replace(replica, max_num_batched_tokens=drawn.max_num_batched_tokens)
    built = tuple(replace(machine, replica=replica) for machine in settings.machines)
    return replace(settings, cache=cache, machines=built)


def crowded(seed: int, **shape: int) -> Trace:
    """Long answers of requests that come together: running ones are preempted."""
    trace = random_trace(seed, **shape)
    return replace(trace, output_tokens=trace.output_tokens * 4 + 60, arrival_ns=trace.arrival_ns // 10)


replicas = st.builds(
    ReplicaSettings,
    max_num_seqs=st.sampled_from([1, 3, 8]),
    queue_order=st.sampled_from(["fcfs", "longest-prefix"]),
    async_scheduling=st.sampled_from(["none", "length", "stop-token"]),
    step_overhead_ns=st.sampled_from([0, 3_000_000]),
)


def layouts_of(kind: str, reach: int, interval: int | None = None) -> GroupSettings:
    full, other = KvGroup("full", 16, 0, (0,)), KvGroup(kind, 16, reach, (1,))
    return GroupSettings("two groups", KvLayout((full, other), 1, 1), 512, interval)
