"""The machines of seed 001 read aloud, and short forms of what its walkthrough does with them.

Two machines of GPU, CPU and disk. A block holds 4 tokens, a token 1,000 bytes of KV in 4 layers: a block is
4,000 bytes and each of its layers 1,000. So that every figure can be checked in the head:

| edge | bytes a ns | a block takes | a layer of it | latency |
|---|---|---|---|---|
| cpu->gpu | 4 | 1,000 ns | 250 ns | 100 ns |
| gpu->cpu | 2 | 2,000 ns | 500 ns | 100 ns |
| disk->cpu | 1 | 4,000 ns | 1,000 ns | 500 ns |
| cpu->disk | 0.5 | 8,000 ns | 2,000 ns | 500 ns |
| machine 1 -> 0 | 1 | 4,000 ns | 1,000 ns | 300 ns |
"""

from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from support.product.machines import ClusterChannels, MachineTiers, open_machines
from support.small_traces import trace_of

A, B, C = range(3)
#: A and B share their first two blocks; C is by itself.
ROWS = [["system", "manual", "a"], ["system", "manual", "b"], ["c0", "c1", "c2"]]
BYTES_PER_S = {"cpu->gpu": 4, "gpu->cpu": 2, "disk->cpu": 1, "cpu->disk": 0.5}
LATENCY_NS = {"cpu->gpu": 100, "gpu->cpu": 100, "disk->cpu": 500, "cpu->disk": 500}


def machines(
    capacities=(4, 4, 8),
    count=2,
    lookup="cluster",
    sharing="fifo",
    priority="in-order",
    latency_occupies=False,
    **movement,
):
    """Return empty caches, each edge of each machine with a channel of its own."""
    kind = {"sharing": sharing, "priority": priority, "latency_occupies": latency_occupies}
    channels, built = {}, []
    for number in range(count):
        edges = {edge: f"{edge} of machine {number}" for edge in BYTES_PER_S}
        for edge, name in edges.items():
            rate = int(BYTES_PER_S[edge] * 10**9)
            channels[name] = ChannelSettings(name, rate, LATENCY_NS[edge], **kind)
        tiers = tuple(
            TierSettings(name, n) for name, n in zip(("gpu", "cpu", "disk"), capacities, strict=False)
        )
        built.append(MachineTiers(tiers, edges))
    network = NetworkSettings(default=ChannelSettings("net", 10**9, 300))
    cache = CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4)
    movement = MovementSettings(lookup=lookup, **movement)
    return open_machines(trace_of(ROWS), built, ClusterChannels(channels, network), cache, movement)


def where(cache, request, limit=3):
    """Return, block by block, the tiers and machines that have it."""
    return [
        [f"{copy.tier} {copy.machine}" for copy in block.copies]
        for block in cache.match_prefix(request, limit)
    ]


def computed(cache, request, blocks):
    """Put a request's blocks on the GPU as if a step had just computed them; they are held no more."""
    active = cache.allocate_active(request, 0, blocks)
    cache.switch_active_into_cache(active, blocks, cache.now_ns)
    cache.release(active)


def on_disk(cache, request, blocks):
    """Put blocks on the disk alone, ready now."""
    space = cache.acquire_space("disk", blocks)
    done = cache.transmit("cpu->disk", 0)  # nothing to send takes no time and no turn
    cache.mark(space, request, 0, done)
    cache.run_until(cache.now_ns)


def in_memory(cache, request, blocks):
    """Put blocks into memory alone, ready now."""
    cache.mark(cache.acquire_space("cpu", blocks), request, 0, cache.transmit("gpu->cpu", 0))
    cache.run_until(cache.now_ns)
