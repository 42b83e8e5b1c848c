"""Host of a policy on one tier: prefix-aware, with every answer checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any

from kvcache_sim.policies.plugins.contract import HOOKS, PolicyViolation, violation
from kvcache_sim.policies.plugins.views import BlockRecord
from kvcache_sim.policies.plugins.watchdog import Watchdog

NO_PARENT = -1


class Pinned:
    """The held blocks and blocks with a resident child, as ``x in pinned``; held blocks can be listed."""

    def __init__(self, held: set[int], children: dict[int, int]) -> None:
        self._held = held
        self._children = children

    def __contains__(self, block: object) -> bool:
        return block in self._held or self._children.get(block, 0) > 0  # type: ignore[call-overload]

    def __iter__(self) -> Any:
        return iter(sorted(self._held))

    def __len__(self) -> int:
        return len(self._held)


class PolicyTier:
    """One tier managed by a plug-in.

    Each request: with ``window`` requests running, the oldest ends; look up the path; hold it; request the
    missing capacity from the policy, all or nothing; check the answer; remove, insert (deepest first), count
    uses (deepest first). After a refusal the request's new blocks are not cached. If all other blocks are
    held, only the first new blocks are cached.
    """

    def __init__(self, policy: Any, name: str, capacity_blocks: int, dog: Watchdog, window: int = 0) -> None:
        self.policy = policy
        self.name = name
        self.capacity = capacity_blocks
        self.mode = getattr(policy, "mode", "closed")
        self.allow_holes = bool(getattr(policy, "allow_holes", False))
        self.takes_victims = bool(getattr(policy, "takes_victims", False))
        self.records: dict[int, BlockRecord] = {}
        self.children: dict[int, int] = {}
        self.below: dict[int, set[int]] = {}
        self.now = 0
        self.now_ns = 0
        self.evictions: list[int] = []
        self.refusals = 0
        self.redirects = 0
        self.holes = 0
        self.not_admitted = 0
        #: Index of the request whose demand last evicted a block, by block.
        self.evicted_by: dict[int, int] = {}
        self._window = window
        self._running: deque[Sequence[int]] = deque()
        self._dog = dog
        self._begin: Callable[..., Any] | None = getattr(policy, "begin", None)
        self._end: Callable[..., Any] | None = getattr(policy, "end", None)
        self._on_leaf: Callable[..., Any] | None = getattr(policy, "on_leaf", None)
        self._on_insert, self._on_hit, self._victims, self._on_remove = (
            getattr(policy, hook) for hook in HOOKS
        )

    def request(self, path: Sequence[int], now_ns: int) -> int:
        """Run one request through the tier and return the number of leading blocks that hit.

        Args:
            path: Block ids of the prompt, first block first.
            now_ns: Simulated time in ns.

        Returns:
            Number of leading blocks of ``path`` that were resident.

        Raises:
            PolicyViolation: An answer broke the contract, or the policy raised an exception.
        """
        self.now += 1
        self.now_ns = now_ns
        records = self.records
        found = 0
        while found < len(path) and path[found] in records:
            found += 1
        if len(self._running) == max(1, self._window):
            self._running.popleft()
        self._running.append(path)
        held = set[int]().union(*self._running)
        # blocks below a hole may be resident although the lookup did not reach them
        new = [k for k in range(found, len(path)) if path[k] not in records]
        missing = len(new)
        new = new[: max(0, self.capacity - sum(block in records for block in held))]
        try:
            if self._begin is not None:
                self._begin([path[k] for k in new], self.now)
            self._evict_for(len(records) + len(new) - self.capacity, held)
            if len(records) + len(new) > self.capacity:
                self.refusals += 1
                new = []
            self.not_admitted += missing - len(new)
            self._use(path, new)
        except PolicyViolation:
            raise
        except (Exception, SystemExit) as error:
            raise self._broken(f"raised {type(error).__name__}: {error}") from None
        return found

    def _use(self, path: Sequence[int], new: list[int]) -> None:
        """Insert the new blocks, then count uses of the others; both deepest first."""
        fresh = set(new)
        for k in reversed(new):
            parent = path[k - 1] if k else NO_PARENT
            record = BlockRecord(path[k], k, parent, self.now, self.now_ns)
            self.records[path[k]] = record
            self.children[parent] = self.children.get(parent, 0) + 1
            self.below.setdefault(parent, set()).add(path[k])
            self._dog.calls += 1
            self._on_insert(record.view, self.now)
        for k in range(len(path) - 1, -1, -1):
            known = self.records.get(path[k])
            if known is None or k in fresh:
                continue
            known.hits += 1
            known.last_use, known.last_use_ns = self.now, self.now_ns
            self._dog.calls += 1
            self._on_hit(known.view, self.now)
        if self._end is not None:
            self._dog.calls += 1
            self._end(path, [path[k] for k in new], self.now)

    def _evict_for(self, shortfall: int, held: set[int]) -> None:
        """Evict the shortfall, or nothing if the policy returns None."""
        if shortfall <= 0:
            return
        if self.mode == "leaves":
            pinned = Pinned(held, self.children)
            for _ in range(shortfall):
                if not self._evict(self._ask(1, pinned), held):
                    return
            return
        # vLLM's policies expect a set; other policies get a read-only container
        self._evict(self._ask(shortfall, held if self.takes_victims else frozenset(held)), held)

    def _ask(self, n: int, pinned: Any) -> list[int] | None:
        self._dog.calls += 1
        answer = self._victims(n, self.now, pinned)
        if answer is None:
            return None
        try:
            victims = list(answer)
        except TypeError:
            raise self._broken(f"victims returned {type(answer).__name__}, not a list of ids") from None
        if len(victims) != n:
            raise self._broken(f"victims returned {len(victims)} blocks, {n} were asked for")
        return victims

    def _evict(self, victims: list[int] | None, held: set[int]) -> bool:
        if victims is None:
            return False
        for victim in sorted(self._checked(victims, held), key=lambda v: (-self.records[v].depth, v)):
            self._remove(victim)
        return True

    def _checked(self, victims: list[int], held: Container[int]) -> list[int]:
        """Return an answer that satisfies the contract, redirected if the policy's mode requires it."""
        for victim in victims:
            if not isinstance(victim, int) or victim not in self.records:
                raise self._broken("returned a block that is not resident", victim)
            if victim in held:
                raise self._broken("returned a held block", victim)
        if len(set(victims)) != len(victims):
            raise self._broken("returned a block twice")
        if self.mode == "redirect":
            victims = self._redirected(victims, held)
        leaving = set(victims)
        for victim in victims:
            stays = [child for child in self.below.get(victim, ()) if child not in leaving]
            if stays and not self.allow_holes:
                raise self._broken(
                    "returned a block whose child stays resident",
                    victim,
                    'give the child too, or set mode = "leaves", mode = "redirect" or allow_holes = True',
                )
            self.holes += bool(stays)
        return victims

    def _redirected(self, victims: list[int], held: Container[int]) -> list[int]:
        """Replace each victim that has resident descendants by the deepest of them."""
        chosen: list[int] = []
        taken: set[int] = set()
        for victim in victims:
            at = victim
            # another redirect may have taken it: then use a block above it, which is not deeper
            while at in taken:
                at = self.records[at].parent
            while below := [c for c in self.below.get(at, ()) if c not in taken]:
                at = max(below, key=lambda c: (self._height(c, taken), -c))
            if at in held:
                raise self._broken("returned a block above a held one", victim)
            self.redirects += at != victim
            taken.add(at)
            chosen.append(at)
        return chosen

    def _height(self, block: int, taken: set[int]) -> int:
        """Return the number of levels to the deepest resident descendant."""
        deepest, todo = 0, [(block, 0)]
        while todo:
            at, height = todo.pop()
            deepest = max(deepest, height)
            todo += [(child, height + 1) for child in self.below.get(at, ()) if child not in taken]
        return deepest

    def _remove(self, victim: int) -> None:
        record = self.records.pop(victim)
        self.evictions.append(victim)
        self.evicted_by[victim] = self.now - 1
        parent = record.parent
        self.children[parent] -= 1
        self.below[parent].discard(victim)
        self._dog.calls += 1
        self._on_remove(record.view, self.now)
        if self._on_leaf is not None and self.children[parent] == 0 and parent in self.records:
            self._on_leaf(self.records[parent].view, self.now)

    def _broken(self, what: str, block: object = None, hint: str = "") -> PolicyViolation:
        return violation(self.name, what, self.now_ns, block=block, hint=hint)
