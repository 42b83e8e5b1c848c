"""What a store without lower tiers answers about moves: there is nothing to send, none can be asked for."""

from __future__ import annotations

from kvcache_sim.cache.store import Order
from kvcache_sim.errors import InvariantError


class OneTier:
    """The part of ``BlockStore`` that concerns lower tiers, for a store that has none.

    ``load`` and its like cannot be reached, for such a store never finds a block that is not ready; each
    raises InvariantError.
    """

    __slots__ = ()

    def take_orders(self) -> list[Order]:
        """Return no transmission."""
        return []

    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Return None: there is nothing to send."""
        del lease, start, end, now_ns
        return None

    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Return None: there is nothing to send."""
        del lease, tier, uses, now_ns
        return None

    def write_on(self, move: int, now_ns: int) -> int | None:
        """Return None: there is nothing to send."""
        del move, now_ns
        return None

    def duplicates(self, tier: int) -> int:
        """Return 0: there is no second tier."""
        del tier
        return 0

    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return nothing: there is nothing below."""
        del request, start, limit
        return []

    def expire(self, now_ns: int) -> None:
        """Do nothing: no block has a time to live."""
        del now_ns

    def touch(self, request: int, end: int) -> None:
        """Refuse."""
        raise _no_tier_below(request, end)

    def discard(self, request: int, start: int, end: int) -> None:
        """Refuse."""
        raise _no_tier_below(request, end)

    def lend(self, request: int, end: int, tier: int) -> int:
        """Refuse."""
        raise _no_tier_below(request, end, tier)

    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Return None: there is no room below."""
        del request, part, now_ns
        return None

    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Return None: there is no room below."""
        del request, part, to_tier, ready, now_ns
        return None

    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Refuse: ``peek`` says all there is to know."""
        raise _no_tier_below(request, limit)

    def protect(self, request: int, end: int, tier: int) -> int:
        """Refuse."""
        raise _no_tier_below(request, end, tier)

    def unprotect(self, tier: int, hold: int) -> None:
        """Refuse."""
        raise _no_tier_below(tier, hold)

    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Refuse."""
        raise _no_tier_below(lease, to, after)

    def join(self, lease: int, to: int) -> None:
        """Refuse."""
        raise _no_tier_below(lease, to)

    def finish_move(self, move: int) -> None:
        """Refuse."""
        raise _no_tier_below(move)

    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Refuse."""
        raise _no_tier_below(request, start, end, tier)


def _no_tier_below(*arguments: object) -> InvariantError:
    return InvariantError("I2: a move on a store without lower tiers", got=repr(arguments))
