"""Cache groups above a tier, with copies that the test completes."""

from dataclasses import replace

from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.serving.settings import ReplicaSettings

from support.clusters import cluster
from support.group_runs import settings_of
from support.product.machines import Newcomer, native_groups
from support.small_traces import trace_of

#: Spare GPU blocks, chunks of the CPU tier, its eviction policy, and blocks of a chunk.
SIZES = (st.integers(0, 12), st.integers(1, 40), st.sampled_from(["lru", "arc"]), st.sampled_from([1, 2, 3]))


def replayed(trace, gpu: int, cpu: int, policy: str, chunk_blocks: int):
    """Return the replay of a trace in blocks of 4 tokens through vLLM's pool and its CPU tier, in blocks."""
    request = ReplayRequest(trace, 4, gpu, outputs="computed", cpu_blocks=cpu, cpu_policy=policy)
    return REPLAYERS["vllm"](replace(request, chunk_blocks=chunk_blocks), "")


def with_tier(
    drawn: GroupSettings, gpu: int, cpu: int, policy: str = "lru", machines: int = 1, chunk_blocks: int = 1
):
    """Return settings of machines whose pool of groups has a tier below."""
    settings = settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=8), gpu, machines)
    tiers = (TierSettings("gpu", gpu), TierSettings("cpu", cpu, policy))
    edges = cluster((gpu, cpu), machines)
    return replace(
        edges,
        cache=replace(
            settings.cache,
            lower_semantics="vllm-offload",
            lower_chunk_tokens=chunk_blocks * settings.cache.block_size_tokens,
        ),
        machines=tuple(
            replace(own, tiers=tiers, replica=m.replica)
            for own, m in zip(edges.machines, settings.machines, strict=True)
        ),
    )


def alone(drawn: GroupSettings, gpu: int, cpu: int, policy: str = "lru", chunk_blocks: int = 1):
    """The same, a request at a time and without time, each prompt in one step."""
    settings = with_tier(replace(drawn, max_num_batched_tokens=4096), gpu, cpu, policy, 1, chunk_blocks)
    machines = tuple(
        replace(m, replica=replace(m.replica, max_num_batched_tokens=4096, instant=True))
        for m in settings.machines
    )
    return replace(settings, machines=machines)


def one_full(block: int) -> GroupSettings:
    """Full attention alone, whose block has 32 pages, one a layer."""
    group = KvGroup("full", block, 0, tuple(range(32)))
    return GroupSettings("one group", KvLayout((group,), block * 4096, 32))


def two_groups(kind: str, reach: int, interval: int | None = 0, block: int = 4) -> GroupSettings:
    """Full attention in layers 0, 2, ..., 30, the other kind between them."""
    full = KvGroup("full", block, 0, tuple(range(0, 32, 2)))
    other = KvGroup(kind, block, reach, tuple(range(1, 32, 2)))
    return GroupSettings("two groups", KvLayout((full, other), block * 4096, 16), 512, interval)


PROMPT = 400


#: Kind and reach → blocks of 4 that a hit of 396 tokens loads of its group, and those that a prompt stores.
LOADED = {
    ("full", 0): (99, 100),
    ("sliding", 50): (13, 13),  # 49 tokens before position 396
    ("sliding", 2): (1, 1),
    ("chunked", 64): (3, 100),  # the chunk that began at 384
    ("linear", 0): (1, 1),
}


def core_store_of(
    settings: GroupSettings, rows: list[list], gpu: int, cpu: int = 1000, write: str = "back"
) -> _core.GroupStore:
    """Return a machine's store for requests of blocks of 4 tokens; ``write`` is of the tree's rules alone."""
    trace, layout = trace_of(rows, 4), settings.layout
    keys = native_groups(layout, trace, answers_shared=True)
    below = (cpu, 1, "lru", write if settings.rules == "tree" else "engine")
    return _core.GroupStore.with_tier(
        keys, settings.limits, gpu, settings.rules, below, trace.input_tokens.tolist()
    )


def newcomer(request: int, tokens: int, step: int | None = None) -> Newcomer:
    """Return a request of a prompt; ``step``: number of its tokens that fit into its first step."""
    given = tokens if step is None else step
    return Newcomer(request, tokens, tokens, (tokens - 1) // 4, given, given, whole=step is None)


def serve(store: _core.GroupStore, request: int, tokens: int) -> int:
    """Admit a request and compute its first step; return its lease."""
    lease, _, end = store.admit(newcomer(request, tokens), 0)
    assert lease is not None
    store.commit(lease, end // 4)
    store.step_computed([lease], 0)
    return lease


def end_copies(store: _core.GroupStore) -> None:
    """Let every copy arrive that has been ordered."""
    for move, *_ in store.take_orders():
        store.finish_move(move)
