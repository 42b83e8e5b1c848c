"""Requests of an instant run: each comes when what the one before it computed has been stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.native import NativeReplica


class OneByOne:
    """Queues the next request of an instant run once no move to or from an engine's own tier is under way.

    Cost: two calls an event of a machine with such a tier.
    """

    def __init__(self, replicas: Sequence[AnyReplica], queue_next: Callable[[], None]) -> None:
        own = [replica for replica in replicas if replica.cache.lower_semantics is not None]
        self._native = [replica for replica in own if isinstance(replica, NativeReplica)]
        self._others = [replica for replica in own if not isinstance(replica, NativeReplica)]
        self._queue_next = queue_next
        #: Whether a request has left and the next one has not been queued.
        self._waits = False
        for replica in self._native:
            replica.after_each_event(self._event_ended)

    def closed(self) -> None:
        """Queue the next request, now or when the last move has ended: one has left.

        A machine of the core reports that after the event in which it left.
        """
        self._waits = True
        if not self._native:
            self.check()

    def check(self) -> None:
        """Queue the next request if one has left and no move is under way."""
        if self._waits and not any(replica.core.open_moves for replica in self._native):
            self._go_on()

    def _event_ended(self, replica: NativeReplica) -> None:
        # What the event sent after the last move had ended does not count.
        was_drained = replica.core.take_drained()
        others = (other.core.open_moves for other in self._native if not (was_drained and other is replica))
        if self._waits and not any(others):
            self._go_on()

    def _go_on(self) -> None:
        transfers = [transfer for replica in self._others for transfer in replica.mover.transfers.values()]
        if transfers:
            transfers[-1].at_completion.append(self.check)
            return
        self._waits = False
        self._queue_next()
