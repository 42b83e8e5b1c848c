"""Features that decide what a machine's cache is: engines' pools, trees and tiers, groups, simplified accounting."""

from support.draft import TOKEN_BYTES, Draft


def _blocks(d: Draft, *requests: float) -> str:
    """Return a capacity in blocks for a number of the largest prompts of 16 Ki tokens, or less."""
    return f"{max(8, round(d.draw.choice(requests) * 16_384 / d.settings['cache.block_size']))} blocks"


def _engine(d: Draft, semantics: str) -> None:
    """Use an engine's own cache on the GPU alone, and only settings compatible with it."""
    d.tree()
    d.one_tier()
    d.clear("tiers.gpu.policy", "cache", "pools", "handover", "replica.copy_submit", "replica.copy_gpu_share")
    d.set(cache__semantics=semantics, cache__block_size=d.draw.choice([64, 128, 256]))
    d.set(tiers__gpu__capacity=_blocks(d, 1.1, 1.5, 3, 12))
    d.maybe(0.1, cache__cache_output=[False], cache__lookup_time=["100us"])


def vllm_pool(d: Draft) -> None:
    """Have vLLM's pool under kvsim's scheduler."""
    _engine(d, "vllm")


def sglang_tree(d: Draft) -> None:
    """Have SGLang's tree under kvsim's scheduler."""
    _engine(d, "sglang")
    d.maybe(0.5, cache__policy=["lfu", "fifo", "slru", "mru"])


def vllm(d: Draft) -> None:
    """Have vLLM's pool and its scheduler."""
    _engine(d, "vllm")
    d.clear("replica.duplicate_prefill", "replica.queue_order", "replica.dp")
    d.set(replica__scheduler="vllm")
    d.maybe(
        0.3,
        replica__watermark=[0.05, 0.3],
        replica__reserve_full_isl=[False],
        replica__long_prefill_token_threshold=[128, 1000],
        replica__prefill_schedule_interval=[2, 10],
        replica__max_num_queued_reqs=[0, 2, 20],
        replica__max_num_queued_tokens=[0, 4000],
    )
    if d.has("replica.long_prefill_token_threshold"):
        d.maybe(0.5, replica__long_prefill_token_threshold_adaptive=[True])


def pipeline(d: Draft) -> None:
    """Have several batches of vLLM's scheduler in flight, a pipeline stage each."""
    vllm(d)
    d.clear("replica.async_scheduling", "replica.speculation")
    d.set(replica__pp=d.draw.choice([2, 2, 3, 4]))


def sglang(d: Draft) -> None:
    """Have SGLang's tree and its scheduler."""
    sglang_tree(d)
    d.clear("replica.duplicate_prefill", "replica.queue_order", "replica.dp")
    d.set(replica__scheduler="sglang")
    d.maybe(
        0.3,
        replica__schedule_policy=["lpm", "dfs-weight", "lof"],
        replica__max_prefill_tokens=[256, 4096],
        replica__max_queued_requests=[0, 2, 20],
        replica__enable_mixed_chunk=[True],
        replica__schedule_conservativeness=[0.1, 0.5],
    )


def _tier(d: Draft, semantics: str) -> None:
    d.set(tiers__cpu__capacity=_blocks(d, 0.5, 2, 8), tiers__cpu__semantics=semantics)


def _engine_link(d: Draft) -> None:
    if d.draw.random() < 0.5:
        d.set(
            channels__link={
                "bandwidth": d.draw.choice(["500MB/s", "5GB/s"]),
                "edges": ["gpu->cpu", "cpu->gpu"],
            }
        )
        d.settings["channels.link"]["sharing"] = d.draw.choice(["fifo", "fair"])


def vllm_offload(d: Draft) -> None:
    """Have vLLM's CPU offloading below its pool."""
    vllm_pool(d)
    _tier(d, "vllm-offload")
    d.maybe(0.4, tiers__cpu__policy=["arc", "lru"], fetch__layer_pipelining=[False])
    _engine_link(d)


def lmcache(d: Draft) -> None:
    """Have LMCache's CPU tier, and its disk now and then, or its server below vLLM's pool."""
    vllm_pool(d)
    is_server = d.draw.random() < 0.3
    _tier(d, "lmcache-server" if is_server else "lmcache")
    if d.draw.random() < 0.5:
        d.set(tiers__disk__capacity=_blocks(d, 1, 4, 16))
    d.maybe(1 if is_server else 0.3, tiers__cpu__policy=["lru", "arc"] if is_server else ["fifo", "lfu"])
    d.maybe(0.3, fetch__layer_pipelining=[False])
    _engine_link(d)


def hicache(d: Draft) -> None:
    """Have SGLang's host tier below its tree."""
    sglang_tree(d)
    _tier(d, "hicache")
    d.clear("cache.policy")
    d.maybe(0.7, write__policy=["through", "selective"])
    d.maybe(0.3, cache__policy=["lfu", "fifo", "slru"], fetch__layer_pipelining=[False])
    _engine_link(d)


def hicache_storage(d: Draft) -> None:
    """Add a storage below SGLang's host tier, with one of the stop policies."""
    hicache(d)
    if d.draw.random() < 0.8:
        # Long sessions that return: what they had has left the tiers above by then.
        d.trace()
        d.set(tiers__gpu__capacity=_blocks(d, 0.35, 0.5, 0.7), tiers__cpu__capacity=_blocks(d, 0.2, 0.4))
    d.set(
        tiers__disk__capacity=d.draw.choice([_blocks(d, 4), _blocks(d, 30)]),
        prefetch__policy="queued",
        fetch__policy=d.draw.choice(["wait", "timeout", "best-effort"]),
    )
    if d.settings["fetch.policy"] == "timeout":
        d.maybe(0.7, fetch__timeout=["1ms", "50ms", "1s"], fetch__timeout_per_ki_token=["0s", "5ms"])
    d.maybe(0.4, prefetch__threshold=[1, 512], prefetch__share=[0.05, 0.9])
    d.maybe(
        0.7, channels__storage=[{"bandwidth": rate, "edges": ["disk->cpu"]} for rate in ("30MB/s", "1GB/s")]
    )


def _grouped(d: Draft) -> None:
    d.clear("replica.async_scheduling", "replica.dp", "router", "cache.lookup_time", "cache.cache_output")
    models = ["gpt-oss-120b", "gpt-oss-20b", "gemma-3-27b", "llama-4-scout", "qwen3-next-80b-a3b"]
    d.set(model=d.draw.choice(models), tiers__gpu__capacity=_blocks(d, 20, 60, 200))
    d.maybe(0.3, cache__retention_interval=[None, 256, 1024])


def groups(d: Draft) -> None:
    """Have cache groups in vLLM's pool or in the tree's, under each scheduler."""
    if d.draw.random() < 0.4:
        (vllm if d.draw.random() < 0.5 else vllm_pool)(d)
    else:
        _engine(d, "tree")
        d.clear("cache.semantics")
        d.set(cache__layer_groups="by-kind")
    _grouped(d)


def group_drafts(d: Draft) -> None:
    """Use speculative drafts with cache groups."""
    groups(d)
    d.clear("tiers.cpu")
    drafts(d)
    d.clear("replica.speculation.eagle")


def group_tier(d: Draft) -> None:
    """Add a CPU tier below cache groups: vLLM's offloading, or the tree's own."""
    if d.draw.random() < 0.5:
        vllm_pool(d)
        _grouped(d)
        _tier(d, "vllm-offload")
    else:
        _engine(d, "tree")
        d.clear("cache.semantics")
        d.set(cache__layer_groups="by-kind")
        _grouped(d)
        d.set(tiers__cpu__capacity=_blocks(d, 2, 60))
        d.maybe(0.5, write__policy=["through"])


def drafts(d: Draft) -> None:
    """Have speculative decoding."""
    d.clear("replica.async_scheduling", "pools", "handover", "replica.instant")
    d.own_scheduler()
    tokens = d.draw.randint(1, 4)
    d.set(replica__speculation__tokens=tokens)
    if d.draw.random() < 0.5:
        d.set(replica__speculation__mean_length=round(d.draw.uniform(1.05, tokens + 0.9), 2))
    else:
        rates = sorted((round(d.draw.random(), 2) for _ in range(tokens)), reverse=True)
        d.set(replica__speculation__acceptance=rates)
    d.maybe(0.3, replica__speculation__draft_time=["2ms"], replica__speculation__eagle=[True])


def simplified(d: Draft) -> None:
    """Count unique tokens instead of keeping blocks."""
    block = d.settings["cache.block_size"]
    d.tree()
    d.one_tier()
    d.clear("cache", "tiers.gpu", "pools", "handover", "replica.duplicate_prefill", "replica.dp")
    d.clear("replica.copy_submit", "replica.copy_gpu_share")
    if d.settings.get("replica.queue_order") == "longest-prefix":
        d.clear("replica.queue_order")
    size = d.draw.choice(
        ["unbounded", f"{d.draw.choice([20_000, 60_000, 200_000]) * TOKEN_BYTES // 2**20}MiB"]
    )
    d.set(cache__accounting="simplified", cache__block_size=block, tiers__gpu__capacity=size)
    d.maybe(0.3, cache__cache_output=[False], cache__lookup_time=["100us"], cache__discard_on_finish=[True])
    d.maybe(
        0.4,
        session_view__max_sessions=[1, 3],
        session_view__ttl=["100ms", "5s"],
        prefix_view__min_tokens=[64, 1024],
        prefix_view__min_seen=[2, 3],
        prefix_view__max_tokens=[512, 8192],
    )
