"""Which implementation decides: the native core, or the slow references, known by name only."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, get_args

from kvcache_sim.errors import UsageError

#: The native core, or the references in plain Python that its tests compare it with.
Backend = Literal["native", "python"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)

#: Name → module and attribute of each reference. Nothing outside ``reference/`` imports from there.
REFERENCES = {
    "digest": "kvcache_sim.reference.digest:RollingDigest",
    "keys": "kvcache_sim.reference.store:ReferenceKeys",
    "store": "kvcache_sim.reference.store:ReferenceStore",
    "store.policy-order": "kvcache_sim.reference.store.orders:PolicyOrder",
    "store.plugin-order": "kvcache_sim.reference.store.orders:PluginOrder",
    "store.vllm": "kvcache_sim.reference.engines.pool_store:ReferencePoolStore",
    "store.vllm-groups": "kvcache_sim.reference.engines.group_store:ReferenceGroupStore",
    "store.vllm-offload": "kvcache_sim.reference.engines.offloaded_store:ReferenceOffloadedStore",
    "store.vllm-offload-groups": "kvcache_sim.reference.engines.offloaded_groups:OffloadedGroupStore",
    "store.tiered-groups": "kvcache_sim.reference.engines.tiered_groups:TieredGroupStore",
    "tier.vllm-offload": "kvcache_sim.reference.engines.offload_tier:OffloadTier",
    "store.lmcache": "kvcache_sim.reference.engines.lmcache_store:ReferenceLmcacheStore",
    "tiers.lmcache": "kvcache_sim.reference.engines.lmcache_store:LmcacheTiers",
    "store.hicache": "kvcache_sim.reference.engines.hicache_store:ReferenceHiCacheStore",
    "store.hicache-storage": "kvcache_sim.reference.engines.hicache_storage_store:StoredHiCacheStore",
    "settings.hicache": "kvcache_sim.reference.engines.hicache_store:HiCacheSettings",
    "store.sglang": "kvcache_sim.reference.engines.radix_store:ReferenceRadixStore",
    "replay.requests": "kvcache_sim.reference.engines.requests:Requests",
    "replay.vllm": "kvcache_sim.reference.engines.vllm_replay:replay_vllm_reference",
    "replay.vllm-groups": "kvcache_sim.reference.engines.group_replay:replay_groups_reference",
    "replay.sglang": "kvcache_sim.reference.engines.sglang_replay:replay_sglang_reference",
    "replay.sglang-unified": "kvcache_sim.reference.engines.unified_replay:replay_unified_reference",
    "replay.lmcache": "kvcache_sim.reference.engines.lmcache_replay:replay_lmcache_reference",
    "replay.vllm-offload": "kvcache_sim.reference.engines.offload_replay:replay_offload_reference",
    "replay.vllm-offloading": "kvcache_sim.reference.engines.vllm_offload_replay:replay_offloading_reference",
    "policies": "kvcache_sim.reference.policies.by_name:make_policy",
}


def reference(name: str) -> Any:
    """Return a reference by its name in ``REFERENCES``; its module is imported now."""
    module, _, attribute = REFERENCES[name].partition(":")
    return getattr(import_module(module), attribute)


def checked_backend(text: str) -> Backend:
    """Return a backend's name; raises UsageError for any other text."""
    for backend in BACKENDS:
        if text == backend:
            return backend
    raise UsageError("unknown backend", where="backend", got=repr(text), expected="native or python")
