"""Every policy that ``--policy`` takes, a row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy: its name, the family that replays it, what it does in a line, and where it is from."""

    name: str
    #: Key of ``kvcache_sim.cache.replay.REPLAYERS``.
    family: str
    #: What the family calls it: the text after the colon, or the policy's own name.
    variant: str
    description: str
    paper: str


_VLLM = "vLLM 0.33.0, vllm/v1/core"
_SGLANG = "SGLang 0.5.23, srt/mem_cache"
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
)
