"""An unmodified SGLang ``EvictionStrategy``: ``get_priority(node)`` of leaves, smallest first."""

from __future__ import annotations

from typing import Any

from kvcache_sim.policies.plugins.views import BlockView


class NodeView:
    """A block under the names of SGLang's ``TreeNode``; times are releases."""

    __slots__ = ("_block",)

    def __init__(self, block: BlockView) -> None:
        self._block = block

    @property
    def last_access_time(self) -> int:
        """Return the release that used it last."""
        return self._block.last_use

    @property
    def creation_time(self) -> int:
        """Return the release that inserted it."""
        return self._block.created

    @property
    def hit_count(self) -> int:
        """Return its uses while cached."""
        return self._block.hits

    @property
    def priority(self) -> int:
        """Return 0: a trace gives requests no priority."""
        return 0

    @property
    def id(self) -> int:
        """Return the number of the block."""
        return self._block.id


def priority_of(strategy: Any) -> Any:
    """Return the strategy as a priority function of a block."""

    def priority(b: BlockView, now: int) -> Any:
        return strategy.get_priority(NodeView(b))

    return priority
