"""Copies that a store decides and the channels of its machine carry."""

from __future__ import annotations

from kvcache_sim.cache.store import Order


class OrdersCopies:
    """A store whose copies wait until its machine asks for them."""

    _orders: list[Order]

    def take_orders(self) -> list[Order]:
        """Return the copies decided since the last call."""
        taken, self._orders = self._orders, []
        return taken

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Hear when a copy will be done, which no decision of an engine's depends on."""
