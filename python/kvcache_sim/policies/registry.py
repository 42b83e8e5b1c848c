"""Every policy that ``--policy`` takes, a row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy: its name, the family that replays it, what it does in a line, and where it is from."""

    name: str
    #: Key of ``kvcache_sim.replay.request.REPLAYERS``.
    family: str
    #: What the family calls it: the text after the colon, or the policy's own name.
    variant: str
    description: str
    paper: str


_VLLM = "vLLM 0.33.0, vllm/v1/core"
_SGLANG = "SGLang 0.5.23, srt/mem_cache"
_TRTLLM = "TensorRT-LLM, KvCacheRetentionConfig"
_OFFLOAD = "vLLM 0.33.0, vllm/v1/kv_offload"

POLICIES: tuple[PolicyRow, ...] = (
    PolicyRow("vllm", "vllm", "", "vLLM's block pool: a free queue, freed tail first", _VLLM),
    PolicyRow("sglang:lru", "sglang", "lru", "SGLang's radix tree, least recent leaf first", _SGLANG),
    PolicyRow("sglang:lfu", "sglang", "lfu", "SGLang's radix tree, fewest hits first, then recency", _SGLANG),
    PolicyRow("sglang:fifo", "sglang", "fifo", "SGLang's radix tree, oldest node first", _SGLANG),
    PolicyRow("sglang:mru", "sglang", "mru", "SGLang's radix tree, most recent leaf first", _SGLANG),
    PolicyRow("sglang:filo", "sglang", "filo", "SGLang's radix tree, newest node first", _SGLANG),
    PolicyRow("sglang:slru", "sglang", "slru", "SGLang's radix tree, leaves hit once first", _SGLANG),
    PolicyRow("vllm-offload:lru", "vllm-offload", "lru", "vLLM's CPU tier, recency", _OFFLOAD),
    PolicyRow("vllm-offload:arc", "vllm-offload", "arc", "vLLM's CPU tier, ARC (FAST 2003)", _OFFLOAD),
    PolicyRow("lru", "prefix", "lru", "least recently used", "Mattson et al., IBM Systems Journal 1970"),
    PolicyRow("fifo", "prefix", "fifo", "first in, first out", "Belady, IBM Systems Journal 1966"),
    PolicyRow(
        "lfu", "prefix", "lfu", "fewest uses while cached", "Robinson and Devarakonda, SIGMETRICS 1990"
    ),
    PolicyRow("sieve", "prefix", "sieve", "a lazy hand over one queue", "Zhang et al., SIEVE, NSDI 2024"),
    PolicyRow(
        "clock", "prefix", "clock", "first in, first out, second chance", "Corbató, MIT MAC-M-384, 1968"
    ),
    PolicyRow("arc", "prefix", "arc", "recency and frequency, adapting", "Megiddo and Modha, ARC, FAST 2003"),
    PolicyRow(
        "s3fifo", "prefix", "s3fifo", "small, main and ghost queues", "Yang et al., S3-FIFO, SOSP 2023"
    ),
    PolicyRow("slru", "prefix", "slru", "probation and protection", "Karedla et al., IEEE Computer 1994"),
    PolicyRow("gdsf", "prefix", "gdsf", "age + uses", "Cherkasova, HPL-98-69R1, 1998"),
    PolicyRow("pgdsf", "prefix", "pgdsf", "age + uses × recompute cost", "Jin et al., RAGCache, 2024"),
    PolicyRow(
        "length-aware",
        "prefix",
        "length-aware",
        "uses, later blocks first",
        "Qin et al., Mooncake, FAST 2025",
    ),
    PolicyRow(
        "ttl", "prefix", "ttl", "unused for a time is gone: ttl:300s", "Jung et al., IEEE INFOCOM 2003"
    ),
    PolicyRow("priority", "prefix", "priority", "token ranges: priority:0-1024=90@30s", _TRTLLM),
    PolicyRow("belady", "prefix", "belady", "ceiling: farthest next use", "Belady, IBM Systems Journal 1966"),
    PolicyRow(
        "unbounded", "prefix", "unbounded", "ceiling: nothing is evicted", "a cache without a capacity"
    ),
)
