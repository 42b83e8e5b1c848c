"""Random small scenarios: settings that every scenario draws, and named features that each may have.

``drawn(seed)`` returns a scenario's settings and files. Scenarios that the program refuses are drawn too:
callers then draw again. Add a row to FEATURES for each feature that a scenario can have.
"""

import json
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from support import cache_features, plugin_features, run_features
from support.base import base
from support.draft import Draft, Settings


class Feature(NamedTuple):
    """One feature: what changes a draft so that it has it."""

    add: Callable[[Draft], None]
    #: The keys that show that a scenario has it.
    keys: tuple[str, ...]
    #: Whether the specification (``kvcache_sim/spec``) may cover it.
    spec: bool = False
    #: True if the feature decides the kind of cache: a scenario has one of these features, unless more are
    #: requested.
    is_cache: bool = False


def _cache(add: Callable[[Draft], None], *keys: str, spec: bool = False) -> Feature:
    return Feature(add, keys, spec, True)


FEATURES: dict[str, Feature] = {
    "vllm-pool": _cache(cache_features.vllm_pool, "cache.semantics"),
    "sglang-tree": _cache(cache_features.sglang_tree, "cache.semantics"),
    "vllm": _cache(cache_features.vllm, "replica.scheduler"),
    "pipeline": _cache(cache_features.pipeline, "replica.pp"),
    "sglang": _cache(cache_features.sglang, "replica.scheduler"),
    "vllm-offload": _cache(cache_features.vllm_offload, "tiers.cpu.semantics"),
    "lmcache": _cache(cache_features.lmcache, "tiers.cpu.semantics"),
    "hicache": _cache(cache_features.hicache, "tiers.cpu.semantics"),
    "hicache-storage": _cache(cache_features.hicache_storage, "tiers.disk.capacity", "tiers.cpu.semantics"),
    "groups": _cache(cache_features.groups, "model"),
    "group-drafts": _cache(cache_features.group_drafts, "model", "replica.speculation.tokens"),
    "group-tier": _cache(cache_features.group_tier, "model", "tiers.cpu.capacity"),
    "simplified": _cache(cache_features.simplified, "cache.accounting", spec=True),
    "drafts": Feature(cache_features.drafts, ("replica.speculation.tokens",)),
    "closed-loop": Feature(run_features.closed_loop, (), True),
    "aborts": Feature(run_features.aborts, ("trace.path",)),
    "retention": Feature(run_features.retention, ("retention",)),
    "tenants": Feature(run_features.tenants, ("tenants",)),
    "priorities": Feature(run_features.priorities, ("trace.path", "replica.queue_order")),
    "duplicate-waits": Feature(run_features.duplicate_waits, ("replica.duplicate_prefill",), True),
    "context-window": Feature(run_features.context_window, ("replica.max_model_len",), True),
    "prefix-gates": Feature(run_features.prefix_gates, ("prefix_view",), True),
    "session-views": Feature(run_features.session_views, ("session_view.max_sessions",), True),
    "routers": Feature(run_features.routers, ("router.policy",), True),
    "remote-reads": Feature(run_features.remote_reads, ("fetch.lookup",), True),
    "decided-handovers": Feature(run_features.decided_handovers, ("handover.decide",)),
    "narrow-kv": Feature(run_features.narrow_kv, ("tiers.cpu.kv_ratio",)),
    "session-prefetch": Feature(run_features.session_prefetch, ("prefetch.policy",), True),
    "shared-pool": Feature(run_features.shared_pool, ("cluster.pool",), True),
    "read-buffers": Feature(run_features.read_buffers, ("fetch.read_buffer_layers",), True),
    "rails": Feature(run_features.rails, ("channel_choice",), True),
    "layered-channels": Feature(run_features.layered_channels, ("channels.link",), True),
    "instant": Feature(run_features.instant, ("replica.instant",), True),
    "ranks": Feature(run_features.ranks, ("replica.dp",)),
    "fleet-plan": Feature(run_features.fleet_plan, ("fleet.plan",)),
    "copies-lost": Feature(run_features.copies_lost, ("fleet.plan",)),
    "slowed-channels": Feature(run_features.slowed_channels, ("fleet.plan",), True),
    "scaling": Feature(run_features.scaling, ("fleet.scaling",)),
    "admission-plugin": Feature(plugin_features.admission, ("cache.admission",)),
    "queue-plugin": Feature(plugin_features.queue, ("replica.queue_order",)),
    "fetch-plugin": Feature(plugin_features.fetch, ("fetch.policy",)),
    "prefetch-plugin": Feature(plugin_features.prefetch, ("prefetch.policy",)),
    "write-plugin": Feature(plugin_features.write, ("write.policy",)),
    "channel-plugin": Feature(plugin_features.channel, ("channel_choice",)),
    "router-plugin": Feature(plugin_features.router, ()),
    "eviction-plugin": Feature(plugin_features.eviction, ()),
    "scaling-plugin": Feature(plugin_features.scaling, ("fleet.scaling",)),
}


class Scenario(NamedTuple):
    """A drawn scenario."""

    settings: Settings
    #: Texts of the scenario's files by name.
    files: dict[str, str]
    #: The features that were added, in their order; a later one may have taken an earlier one out.
    features: tuple[str, ...]

    @property
    def present(self) -> tuple[str, ...]:
        """The features whose keys are still set."""
        return tuple(
            name
            for name in self.features
            if all(
                any(own == key or own.startswith(key + ".") for own in self.settings)
                for key in FEATURES[name].keys
            )
        )

    def write(self, folder: Path) -> None:
        """Write the files into a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text)

    def arguments(self) -> list[str]:
        """Return the arguments of ``kvsim simulate``, run in the files' folder."""
        said = [
            (key, value if isinstance(value, str) else json.dumps(value))
            for key, value in self.settings.items()
        ]
        return [word for key, value in said for word in ("--set", f"{key}={value}")]


def drawn(seed: int, features: Collection[str] = (), only_spec: bool = False) -> Scenario:
    """Return a random scenario that has the named features, and others by chance.

    Args:
        seed: Equal seeds and features give equal scenarios.
        features: Names of FEATURES that are added whatever the draw.
        only_spec: Draw only what the specification may cover.

    Raises:
        KeyError: There is no such feature.
    """
    for name in features:
        FEATURES[name]  # raises KeyError
    order = list(FEATURES)
    draft = Draft(seed, only_spec)
    base(draft)
    by_chance = _by_chance(seed, only_spec, features)
    # requested features come last, so that no other feature removes them
    chosen = tuple(sorted({*features, *by_chance}, key=lambda name: (name in features, order.index(name))))
    for name in chosen:
        draft.draw = random.Random(f"{seed} {name}")
        FEATURES[name].add(draft)
    draft.finish()
    return Scenario(draft.settings, draft.files, chosen)


def _by_chance(seed: int, only_spec: bool, features: Collection[str]) -> set[str]:
    """Return up to two features besides the requested ones; at most one decides the kind of cache."""
    draw = random.Random(f"{seed} features")
    names = [name for name, own in FEATURES.items() if own.spec or not only_spec]
    caches = [name for name in names if FEATURES[name].is_cache]
    others = [name for name in names if not FEATURES[name].is_cache]
    found = {draw.choice(caches)} if draw.random() < 0.35 else set()
    if any(FEATURES[name].is_cache for name in features):
        found = set()
    return found | set(draw.sample(others, draw.choice([0, 1, 1, 2])))
