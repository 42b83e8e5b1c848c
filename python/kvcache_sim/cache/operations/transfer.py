"""A transfer of a machine that is operated manually, and its times."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim import _core
from kvcache_sim.channels.channel import NOT_YET, Transmission
from kvcache_sim.tiers import PLACES


class NativeTransfer:
    """A copy on its way over one channel; the core has its times, which are looked up."""

    def __init__(self, core: _core.OperatedMachines, machine: int, move: int) -> None:
        kept = core.keep(machine, move)
        assert kept is not None, "a move that has not ended"
        self._core, self._machine, self.move = core, machine, move
        self._number, self.from_tier, self.to_tier, self.blocks = kept

    @property
    def edge(self) -> str:
        """Its edge, such as ``cpu->gpu`` or ``remote->cpu``."""
        return f"{PLACES[self.from_tier]}->{PLACES[self.to_tier]}"

    @property
    def sent(self) -> Transmission | None:
        """Its times on the channel; None before it is there."""
        return self._core.sent(self._machine, self._number)

    @property
    def first_layer_ready_at_ns(self) -> int | None:
        """Arrival time of its first layer, None while that is not known."""
        sent = self.sent
        return None if sent is None or sent.first_layer_ns >= NOT_YET else sent.first_layer_ns

    @property
    def ready_at_ns(self) -> int | None:
        """Arrival time of its last layer, None while that is not known."""
        sent = self.sent
        return None if sent is None or sent.completion_ns >= NOT_YET else sent.completion_ns


def latest(times_ns: Iterable[int | None], default_ns: int) -> int | None:
    """Return the latest of some times, ``default_ns`` without any; None where one is not known yet."""
    latest_ns = default_ns
    for k, time_ns in enumerate(times_ns):
        if time_ns is None:
            return None
        latest_ns = max(latest_ns, time_ns) if k else time_ns
    return latest_ns
