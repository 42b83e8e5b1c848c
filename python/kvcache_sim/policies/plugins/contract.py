"""The contract of eviction policy classes, and the error for a broken contract."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol

from kvcache_sim.base.errors import EXIT_INTERNAL, KvsimError
from kvcache_sim.policies.plugins.views import BlockView

#: ``closed``: victims include all resident blocks below them. ``leaves``: one victim at a time; a block with
#: a resident child counts as pinned. ``redirect``: a victim with resident descendants stays, its deepest
#: descendant is evicted instead, and the redirect is counted.
MODES = ("closed", "leaves", "redirect")


class EvictionPolicy(Protocol):
    """An eviction policy of level 2; no base class is needed.

    ``name``, ``mode`` and ``allow_holes`` are optional attributes.

    Hooks of a request are called deepest block first: new blocks, then the blocks found. The class is
    constructed with the tier's view and the keyword arguments written after its name.

    In all hooks ``now`` is the number of the current release, not a time; ``b.last_use_ns`` has simulated
    time.
    """

    def on_insert(self, b: BlockView, now: int) -> None:
        """Add a new block.

        Args:
            b: The block, read-only; it is resident until ``on_remove``.
            now: Number of the current release.
        """

    def on_hit(self, b: BlockView, now: int) -> None:
        """Record a use of a resident block.

        Args:
            b: The block, with this use counted in ``b.hits`` and ``b.last_use``.
            now: Number of the current release.
        """

    def victims(self, n: int, now: int, pinned: Container[int]) -> Sequence[int] | None:
        """Choose blocks to evict; must not change the policy's state.

        Args:
            n: Number of blocks to evict, at least 1.
            now: Number of the current release.
            pinned: Ids of blocks that cannot be evicted; supports ``in``.

        Returns:
            Exactly ``n`` distinct ids of resident blocks, none of them pinned; None to refuse the request's
            new blocks.
        """

    def on_remove(self, b: BlockView, now: int) -> None:
        """Remove a block that was evicted.

        Args:
            b: The block; the view is invalid after the call.
            now: Number of the current release.
        """


HOOKS = ("on_insert", "on_hit", "victims", "on_remove")


class PolicyViolation(KvsimError):
    """A broken contract of a plug-in: names the policy, the block, the simulated time (exit 1)."""

    exit_code = EXIT_INTERNAL


def violation(
    policy: str, what: str, now_ns: int, *, block: object = None, hint: str = ""
) -> PolicyViolation:
    """Return the error of a broken contract."""
    parts = [f"at {now_ns} ns of simulated time"]
    if block is not None:
        parts.insert(0, f"block {block}")
    return PolicyViolation(what, where=f"policy {policy}", got=" ".join(parts), hint=hint)
