"""Requests of an instant run: each comes when what the one before it computed has been stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.serving.replica.native import NativeReplica


class OneByOne:
    """Queues the next request of an instant run once no move to or from an engine's own tier is under way.

    Cost: two calls an event of a machine with such a tier.
    """

    def __init__(self, replicas: Sequence[NativeReplica], queue_next: Callable[[], None]) -> None:
        #: Replicas with a tier of an engine's own below the GPU.
        self._tiered = [replica for replica in replicas if replica.cache.lower_semantics is not None]
        self._queue_next = queue_next
        #: Whether a request has left and the next one has not been queued.
        self._waits = False
        for replica in self._tiered:
            replica.after_each_event(self._event_ended)

    def closed(self) -> None:
        """Queue the next request, now or when the last move has ended: one has left.

        A replica reports a request after the event in which it left.
        """
        self._waits = True
        if not self._tiered:
            self.check()

    def check(self) -> None:
        """Queue the next request if one has left and no move is under way."""
        if self._waits and not any(replica.core.open_moves for replica in self._tiered):
            self._go_on()

    def _event_ended(self, replica: NativeReplica) -> None:
        # What the event sent after the last move had ended does not count.
        was_drained = replica.core.take_drained()
        others = (other.core.open_moves for other in self._tiered if not (was_drained and other is replica))
        if self._waits and not any(others):
            self._go_on()

    def _go_on(self) -> None:
        self._waits = False
        self._queue_next()
