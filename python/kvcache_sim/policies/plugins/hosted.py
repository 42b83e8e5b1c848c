"""A plug-in as the eviction order of a tier of a timed run.

The plug-in is notified of inserted, used and removed blocks, and its answers are checked. For a function of
the block alone the core keeps the index.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.policies.plugins.contract import violation
from kvcache_sim.policies.plugins.host import NO_PARENT, PolicyTier
from kvcache_sim.policies.plugins.priority import PriorityFunction, PriorityPolicy
from kvcache_sim.policies.plugins.uses import WatchedCalls
from kvcache_sim.policies.plugins.views import BlockRecord
from kvcache_sim.policies.plugins.watchdog import Watchdog


class HostedOrder(PolicyTier):
    """The hooks that a store calls (``EvictionOrder``): insertion, use and removal of blocks, and eviction.

    With ``leaves`` one victim is requested at a time, and a block with a resident child counts as pinned.
    Otherwise a victim that is followed by a resident block is replaced by the deepest such block, and
    ``redirects`` counts the replacement: blocks also arrive here without a release, so no policy can keep an
    order that is always leaf first. Every call may raise ``PolicyViolation`` with the policy, block and time.
    """

    def __init__(self, policy: Any, name: str, capacity_blocks: int, dog: Watchdog, leaves: bool) -> None:
        super().__init__(policy, name, capacity_blocks, dog)
        self._calls = WatchedCalls("eviction policy", name, dog)
        self.leaves = leaves or self.mode == "leaves"
        self.mode = "leaves" if self.leaves else "redirect"

    def join(self, key: int, depth: int, parent: int | None, now: int, now_ns: int) -> None:
        """Insert a new block: its key, depth, parent key, release number and time."""
        self.now, self.now_ns = max(self.now, now), now_ns
        above = NO_PARENT if parent is None else parent
        record = BlockRecord(key, depth, above, now, now_ns)
        self.records[key] = record
        self.children[above] = self.children.get(above, 0) + 1
        self.below.setdefault(above, set()).add(key)
        self._call(self._on_insert, record.view, self.now)

    def used(self, key: int, now: int, now_ns: int) -> None:
        """Record a use of a block."""
        self.now, self.now_ns = now, now_ns
        record = self.records[key]
        record.hits += 1
        record.last_use, record.last_use_ns = now, now_ns
        self._call(self._on_hit, record.view, now)

    def leave(self, key: int) -> None:
        """Remove a block."""
        record = self.records.pop(key)
        above = record.parent
        self.children[above] -= 1
        self.below[above].discard(key)
        self._call(self._on_remove, record.view, self.now)
        if self._on_leaf is not None and self.children[above] == 0 and above in self.records:
            self._call(self._on_leaf, self.records[above].view, self.now)

    def victims(self, wanted: int, now_ns: int, pinned: Container[int]) -> list[int]:
        """Return the next victims, deepest first."""
        self.now_ns = now_ns
        n = 1 if self.leaves else wanted
        answer = self._call(self._ask, n, pinned)
        if answer is None:
            raise self._broken(f"named no victims, {n} blocks may go")
        chosen = self._call(self._checked, answer, pinned)
        return sorted(chosen, key=lambda k: (-self.records[k].depth, k))

    def _call(self, hook: Any, *arguments: Any) -> Any:
        return self._calls(hook, self.now_ns, *arguments)


class HostedPriority:
    """Calls a priority function for the core, which keeps the blocks and evicts the smallest value first."""

    #: Always 0: an evictable block has no resident child.
    redirects = 0

    def __init__(self, function: PriorityFunction, name: str, dog: Watchdog) -> None:
        self._function = function
        self.name = name
        self._calls = WatchedCalls("eviction policy", name, dog)

    def rank(self, b: Any, now: int, now_ns: int) -> Any:
        """Return the value of a block.

        Args:
            b: The block, with the attributes of ``BlockView``.
            now: Number of the latest release.
            now_ns: Simulated time of that release, in ns.

        Returns:
            A comparable value; the block with the smallest value is evicted first.

        Raises:
            PolicyViolation: The function raised, or did not return in time.
        """
        return self._calls(self._function, now_ns, b, now)

    def worded(self, error: BaseException, now_ns: int) -> BaseException:
        """Return the error for values that cannot be compared."""
        if isinstance(error, KvsimError):
            return error
        return violation(self.name, f"raised {type(error).__name__}: {error}", now_ns)


def function_alone(policy: Any) -> PriorityFunction | None:
    """Return the priority function of a policy that depends on the block only; None for any other policy."""
    is_plain = type(policy) is PriorityPolicy and not policy.uses_now
    return policy.function if is_plain else None
