"""Stand-ins for names that policy files of vLLM, SGLang and libCacheSim import from missing packages.

Interfaces only, so that an unmodified file can be imported: vLLM's ``CachePolicy`` and ``BlockStatus``
(v1/kv_offload), SGLang's ``EvictionStrategy`` (srt/mem_cache/evict_policy), libCacheSim's annotations.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class BlockStatus:
    """A block of vLLM's policies: ``ref_cnt`` is −1 until the block is readable."""

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = -1

    @property
    def is_ready(self) -> bool:
        """Return True if the block is readable."""
        return self.ref_cnt >= 0


class CachePolicy:
    """Base of vLLM's policies."""

    def __init__(self, cache_capacity: int) -> None:
        self.cache_capacity = cache_capacity

    def mark_evictable(self, key: object) -> None:
        """Mark a block that no request reads as evictable."""

    def mark_non_evictable(self, key: object) -> None:
        """Mark a block that a request reads as not evictable."""


class EvictionStrategy:
    """Base of SGLang's strategies."""


_VLLM_NAMES = {
    "BlockStatus": BlockStatus,
    "CachePolicy": CachePolicy,
    "BlockHash": bytes,
    "OffloadKey": bytes,
    "ReqContext": object,
    "init_logger": logging.getLogger,
}
#: Module → the names that it provides.
_MODULES: dict[str, dict[str, Any]] = {
    "vllm.logger": _VLLM_NAMES,
    "vllm.v1.core.kv_cache_utils": _VLLM_NAMES,
    "vllm.v1.kv_offload.abstract": _VLLM_NAMES,
    "vllm.v1.kv_offload.base": _VLLM_NAMES,
    "vllm.v1.kv_offload.cpu.policies.abstract": _VLLM_NAMES,
    "vllm.v1.kv_offload.cpu.policies.base": _VLLM_NAMES,
    "sglang.srt.mem_cache.evict_policy": {"EvictionStrategy": EvictionStrategy},
    "sglang.srt.mem_cache.radix_cache": {"TreeNode": object},
    "libcachesim": {
        "CommonCacheParams": object,
        "LRU": object,
        "PluginCache": object,
        "Request": object,
        "TraceReader": object,
        "TraceType": object,
    },
}


@contextmanager
def stand_ins() -> Iterator[None]:
    """Provide the names during the import of a file, for packages that are not installed."""
    added = []
    absent = {top for top in ("vllm", "sglang", "libcachesim") if _is_absent(top)}
    for name, names in _MODULES.items():
        if name.partition(".")[0] not in absent:
            continue
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module_name = ".".join(parts[:end])
            if module_name not in sys.modules:
                sys.modules[module_name] = ModuleType(module_name)
                sys.modules[module_name].__path__ = []
                added.append(module_name)
        vars(sys.modules[name]).update(names)
    try:
        yield
    finally:
        for module_name in added:
            sys.modules.pop(module_name, None)


def _is_absent(package: str) -> bool:
    return package not in sys.modules and find_spec(package) is None
