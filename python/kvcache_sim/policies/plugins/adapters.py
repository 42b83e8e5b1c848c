"""Adapters of policies written for SGLang, vLLM and libCacheSim."""

from __future__ import annotations

import inspect
from collections.abc import Container, Sequence
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.plugins.stand_ins import BlockStatus
from kvcache_sim.policies.plugins.views import BlockView, TierView


class NodeView:
    """A block under the names of SGLang's ``TreeNode``; times are release numbers."""

    __slots__ = ("_block",)

    def __init__(self, block: BlockView) -> None:
        self._block = block

    @property
    def last_access_time(self) -> int:
        """Return the number of the release that used the block last."""
        return self._block.last_use

    @property
    def creation_time(self) -> int:
        """Return the number of the release that inserted the block."""
        return self._block.created

    @property
    def hit_count(self) -> int:
        """Return the uses of the block while cached."""
        return self._block.hits

    @property
    def priority(self) -> int:
        """Return 0: requests of a trace have no priority."""
        return 0

    @property
    def id(self) -> int:
        """Return the id of the block."""
        return self._block.id


def priority_of(strategy: Any) -> Any:
    """Return an SGLang strategy as a priority function of a block."""

    def priority(b: BlockView, now: int) -> Any:
        return strategy.get_priority(NodeView(b))

    return priority


class VllmPolicy:
    """Adapter of vLLM's offload policies. Keys are block ids; a parent may be evicted before its children.

    ``evict`` chooses and removes in one call, so the removal is complete when ``victims`` returns. A new
    block becomes readable after the request's blocks were touched, as in vLLM (else ARC would count the
    insertion as a second use).
    """

    allow_holes = True
    takes_victims = True

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        context = "req_context" in inspect.signature(policy.touch).parameters
        self.context: tuple[Any, ...] = (None,) if context else ()

    def begin(self, missing: Sequence[int], now: int) -> None:
        """Touch the keys that will be stored, so that ghost lists are updated."""
        self.policy.touch(list(missing), *self.context)

    def victims(self, n: int, now: int, pinned: Container[int]) -> list[int] | None:
        """Evict exactly n blocks, or none."""
        found = self.policy.evict(n, pinned)
        return None if found is None else [key for key, _ in found]

    def on_insert(self, b: BlockView, now: int) -> None:
        """Store a block that is not readable yet."""
        self.policy.insert(b.id, BlockStatus(b.id))

    def on_hit(self, b: BlockView, now: int) -> None:
        """Do nothing: the request's blocks are touched together at its end."""

    def on_remove(self, b: BlockView, now: int) -> None:
        """Do nothing: ``evict`` removed the block."""

    def end(self, path: Sequence[int], inserted: Sequence[int], now: int) -> None:
        """Touch the request's blocks and make the new ones readable."""
        self.policy.touch(list(path), *self.context)
        for key in inserted:
            status = self.policy.get(key)
            if status is not None:
                status.ref_cnt = 0
            if hasattr(self.policy, "mark_evictable"):
                self.policy.mark_evictable(key)


_HOOKS = ("init", "hit", "miss", "eviction", "remove")


class Parameters:
    """libCacheSim's ``CommonCacheParams``: sizes count blocks."""

    def __init__(self, cache_size: int) -> None:
        self.cache_size = cache_size
        self.default_ttl = 0
        self.hashpower = 0
        self.consider_obj_metadata = False


class Request:
    """libCacheSim's ``Request``: every block is an object of size 1."""

    __slots__ = ("clock_time", "next_access_vtime", "obj_id", "obj_size", "valid")

    def __init__(self, obj_id: int, clock_time: int) -> None:
        self.obj_id = obj_id
        self.obj_size = 1
        self.clock_time = clock_time
        self.next_access_vtime = -2
        self.valid = True


class LibCacheSimHooks:
    """Adapter of libCacheSim hooks: the eviction hook removes its victim; the miss hook reinserts it."""

    allow_holes = True
    takes_victims = True

    def __init__(self, hooks: dict[str, Any], tier: TierView) -> None:
        self.hooks = hooks
        self.data = hooks["init"](Parameters(tier.capacity_blocks))
        self.incoming = 0
        self.resident = 0

    def begin(self, missing: Any, now: int) -> None:
        """Store the first missing block, which the eviction hook receives as its request."""
        self.incoming = missing[0] if missing else 0

    def victims(self, n: int, now: int, pinned: Container[int]) -> list[int] | None:
        """Call the eviction hook until it has returned n evictable blocks."""
        found: list[int] = []
        kept: list[int] = []
        for _ in range(self.resident):
            if len(found) == n:
                break
            victim = self.hooks["eviction"](self.data, Request(self.incoming, now))
            (kept if victim in pinned else found).append(victim)
            if victim in pinned:
                self.hooks["miss"](self.data, Request(victim, now))
        return found if len(found) == n else None

    def on_insert(self, b: BlockView, now: int) -> None:
        """Call the miss hook."""
        self.resident += 1
        self.hooks["miss"](self.data, Request(b.id, now))

    def on_hit(self, b: BlockView, now: int) -> None:
        """Call the hit hook."""
        self.hooks["hit"](self.data, Request(b.id, now))

    def on_remove(self, b: BlockView, now: int) -> None:
        """Update the count; the eviction hook has removed the block already."""
        self.resident -= 1


def hooks_of(module: Any, where: str) -> dict[str, Any]:
    """Return the hooks of a file, named ``cache_hit_hook`` or ``hit_hook``; raises ``UsageError``."""
    hooks: dict[str, Any] = {}
    for kind in _HOOKS:
        for name in (f"cache_{kind}_hook", f"{kind}_hook"):
            if callable(getattr(module, name, None)):
                hooks.setdefault(kind, getattr(module, name))
    absent = [f"cache_{kind}_hook" for kind in _HOOKS if kind not in hooks]
    if absent:
        raise UsageError("not a set of libCacheSim hooks", where=where, got=f"no {', no '.join(absent)}")
    return hooks
