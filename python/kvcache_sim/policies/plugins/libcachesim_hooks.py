"""An unmodified set of libCacheSim plug-in hooks: init, hit, miss, eviction, remove, free."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.policies.plugins.views import BlockView, TierView

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
    """The eviction hook forgets what it returns; the miss hook puts a held block back."""

    allow_holes = True
    takes_victims = True

    def __init__(self, hooks: dict[str, Any], tier: TierView) -> None:
        self.hooks = hooks
        self.data = hooks["init"](Parameters(tier.capacity_blocks))
        self.incoming = 0
        self.resident = 0

    def begin(self, missing: Any, now: int) -> None:
        """Remember for whom room will be made."""
        self.incoming = missing[0] if missing else 0

    def victims(self, n: int, now: int, pinned: Container[int]) -> list[int] | None:
        """Ask the eviction hook n times."""
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
        """Count; the eviction hook has forgotten the block."""
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
