"""Published pairs of runs with and without a connector, as ``docs/data/connector-pairs.toml`` states them."""

import json
import random
from pathlib import Path
from typing import Any

import kvcache_sim as kv

from support.llm_d_guide import SCENARIO, by_scorers

OWN: dict[str, Any] = {
    "model": "qwen3-8b",
    "replica.step_time": "roofline:qwen3-8b@rtx4090",
    "replica.release": "vllm@0.10.1.1",
    "replica.max_model_len": "auto",
    "cache.semantics": "vllm",
    "cache.block_size": 16,
    "workload.kind": "diverse",
    "workload.output_tokens": 128,
    "workload.requests": 100,
    "workload.arrivals.rate_per_s": 100_000,
}
LMCACHE: dict[str, Any] = {
    "tiers.cpu.semantics": "lmcache",
    "tiers.cpu.policy": "lru",
    "tiers.cpu.chunk_tokens": 256,
}
OFFLOADING: dict[str, Any] = {
    **{key: value for key, value in SCENARIO.items() if key not in ("workload.loop", "workload.concurrency")},
    "cache.semantics": "vllm",
    "workload.pool_size": 250,
    "workload.prefix_tokens": 16_000,
    "workload.output_tokens": 256,
    "tiers.gpu.capacity": "18625 blocks",
}
DISK: dict[str, Any] = {
    **SCENARIO,
    **LMCACHE,
    "model": "llama-3.3-70b",
    "cluster.machines": 4,
    "replica.step_time": "h100-llama-3-70b-tp4",
    "cache.semantics": "vllm",
    "workload.pool_size": 50,
    "workload.prefix_tokens": 50_000,
    "workload.concurrency": 20,
    "workload.requests": 2500,
    "tiers.gpu.capacity": "10768 blocks",
    "tiers.cpu.capacity": "80GiB",
}


def _own(tokens: int) -> list[dict[str, Any]]:
    alone = {**OWN, "workload.prompt_tokens": tokens}
    return [alone, {**alone, **LMCACHE, "tiers.cpu.capacity": "50GiB"}]


def _offloading(rate: int) -> list[dict[str, Any]]:
    alone = {**OFFLOADING, "workload.arrivals.rate_per_s": rate, "workload.requests": 60 * rate}
    gpu = {**by_scorers(queue=2, **{"kv-use": 2}, prefix=3), "router.index_blocks": 18_625 // 4}
    tiers = {**by_scorers(queue=1, **{"kv-use": 1}, prefix=2), "router.index_blocks": 82_000 // 4}
    tier = {"tiers.cpu.capacity": "82000 blocks", "tiers.cpu.semantics": "vllm-offload"}
    return [{**alone, **gpu}, {**alone, **tiers, **tier}]


def _disk() -> list[dict[str, Any]]:
    alone = {**DISK, **by_scorers(queue=2, **{"kv-use": 2}, prefix=2)}
    return [alone, {**alone, "tiers.disk.capacity": "4480GiB"}]


#: By the row of the page: the runs without and with it.
PAIRS = {
    **{f"LMCache, {tokens:,} own tokens": _own(tokens) for tokens in (1024, 8192, 20_480)},
    **{f"vLLM's offloading, {rate} requests/s": _offloading(rate) for rate in (10, 20)},
    "LMCache's disk": _disk(),
}


def served(pair: str) -> list[float]:
    """Return thousand tokens a second, of prompts and answers, without and with the connector, and their ratio."""
    rates = []
    for given in PAIRS[pair]:
        found = kv.simulate(**given).summary
        prompt = given.get("workload.prompt_tokens") or given["workload.prefix_tokens"] + 256
        rates.append(found["throughput"]["requests_per_s"] * (prompt + given["workload.output_tokens"]) / 1e3)
    return [*rates, rates[1] / rates[0]]


def ladder(folder: Path) -> list[list[float]]:
    """Return thousand tokens a second of offloading at 10 and at 20 requests/s, each a minute after the lower rate's.

    A minute without arrivals lies between two rates; a rate's requests are served from its start to the end
    of the last of them.
    """
    draw, rows, begins = random.Random(1), [], []
    for rate in (5, 10, 20):
        begins.append(at := 120.0 * len(begins))
        for _ in range(60 * rate):
            at += draw.expovariate(rate)
            rows.append((at, draw.randrange(250)))
    trace = folder / "ladder.jsonl"
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    with trace.open("w") as file:
        for row, (at, prefix) in enumerate(rows):
            ids = [
                *range(2000 * prefix, 2000 * prefix + 1000),
                *range(10**7 + 16 * row, 10**7 + 16 * row + 16),
            ]
            file.write(json.dumps(dict(zip(keys, (int(1000 * at), 16_256, 256, ids), strict=True))) + "\n")
    found = []
    for given in _offloading(10):
        fixed = {key: value for key, value in given.items() if not key.startswith("workload.")}
        run = kv.simulate(str(trace), **fixed, **{"trace.block_size": 16}).requests.to_pandas()
        spans = [run[(run.arrival_ns >= at * 1e9) & (run.arrival_ns < (at + 119) * 1e9)] for at in begins[1:]]
        found.append(
            [
                len(part) * 16.512 / (float(part.finish_ns.max()) / 1e9 - at)
                for part, at in zip(spans, begins[1:], strict=True)
            ]
        )
    return [[alone, tier, tier / alone] for alone, tier in zip(*found, strict=True)]
