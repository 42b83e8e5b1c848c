"""llm-d's guide to a CPU tier: Qwen3-32B on eight engines of two H100, 45 prefixes of 30,000 tokens, 45 at a time.

Source: guides/tiered-prefix-cache/cpu of github.com/llm-d/llm-d (README and manifests/inferencepool/values.yaml).
"""

from typing import Any

import kvcache_sim as kv

REQUESTS = 1350
SCENARIO: dict[str, Any] = {
    "model": "qwen3-32b",
    "cluster.machines": 8,
    "replica.step_time": "h100-qwen3-32b-tp2",
    # The page's figures are of kernels alone; the guide does not record its requests' sampling.
    "replica.sampling": "plain",
    "replica.sustained_clocks": False,
    "replica.async_scheduling": "length",
    "replica.max_num_batched_tokens": 8192,
    "cache.block_size": 16,
    "workload.kind": "few-shot",
    "workload.pool_size": 45,
    "workload.query_tokens": 256,
    "workload.output_tokens": 1024,
    "workload.loop": "closed",
    "workload.concurrency": 45,
    "workload.arrivals.rate_per_s": 1000,
    "workload.requests": REQUESTS,
}


def by_scorers(**weights: float) -> dict[str, Any]:
    """Return the gateway's router with these weights, its index as large as the CPU tier (in blocks of 64)."""
    return {
        "router.policy": "weighted",
        "router.scorers": weights,
        "router.index.kind": "estimated",
        "router.index_blocks": 41_000 // 4,
        "router.view.interval": "50ms",
    }


ROUTERS: dict[str, dict[str, Any]] = {
    "round robin": {"router.policy": "round-robin"},
    "longest prefix": {"router.policy": "longest-prefix"},
    "the guide's scorers, prefix 1": by_scorers(queue=2, **{"kv-use": 2}, prefix=1),
    "the guide's scorers, prefix 2": by_scorers(queue=2, **{"kv-use": 2}, prefix=2),
}


def served(router: str, cpu: bool, blocks: int = 9271, prefix: int = 30_000, **changes: Any) -> list[float]:
    """Return mean and P90 of TTFT, of E2E, in s, and thousand tokens a second, prompts and answers."""
    tier = {"tiers.cpu.capacity": "41000 blocks"} if cpu else {}
    own = {"tiers.gpu.capacity": f"{blocks} blocks", "workload.prefix_tokens": prefix}
    found = kv.simulate(**SCENARIO, **ROUTERS[router], **tier, **own, **changes).summary
    times = [found["latency"][of][which] / 1e3 for of in ("ttft", "e2e") for which in ("avg", "p90")]
    rate = found["throughput"]["output_tokens_per_s"] * (prefix + 256 + 1024) / 1024 / 1e3
    return [*times, rate]
