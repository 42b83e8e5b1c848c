"""What a policy class promises, and what the engine refuses."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol

from kvcache_sim.errors import EXIT_INTERNAL, KvsimError
from kvcache_sim.policies.plugins.views import BlockView

#: ``closed``: victims are given with all that is resident below them. ``leaves``: one victim at a time, and
#: everything with a resident child counts as pinned. ``redirect``: a victim with resident descendants stays,
#: its deepest descendant goes, and the redirect is counted.
MODES = ("closed", "leaves", "redirect")


class EvictionPolicy(Protocol):
    """A policy of level 2. No base class is needed; ``name``, ``mode`` and ``allow_holes`` are optional.

    Hooks of a request come deepest block first: new blocks, then the blocks found. The class is called with
    the tier's view and the keyword arguments written behind its name.
    """

    def on_insert(self, b: BlockView, now: int) -> None:
        """Learn of a new block."""

    def on_hit(self, b: BlockView, now: int) -> None:
        """Learn of a use."""

    def victims(self, n: int, now: int, pinned: Container[int]) -> Sequence[int] | None:
        """Return the ids of exactly n blocks to evict, none pinned, or None; change nothing."""

    def on_remove(self, b: BlockView, now: int) -> None:
        """Forget a block."""


HOOKS = ("on_insert", "on_hit", "victims", "on_remove")


class PolicyViolation(KvsimError):
    """A plug-in broke its promise: names the policy, the block, the simulated time (exit 1)."""

    exit_code = EXIT_INTERNAL


def violation(
    policy: str, what: str, now_ns: int, *, block: object = None, hint: str = ""
) -> PolicyViolation:
    """Return the error of a broken promise."""
    parts = [f"at {now_ns} ns of simulated time"]
    if block is not None:
        parts.insert(0, f"block {block}")
    return PolicyViolation(what, where=f"policy {policy}", got=" ".join(parts), hint=hint)
