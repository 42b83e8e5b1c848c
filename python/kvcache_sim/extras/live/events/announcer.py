"""Publishes the changes of a fleet's caches: one publisher per machine, one batch per step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from kvcache_sim.extras.live.events.hashes import BlockHashes
from kvcache_sim.extras.live.events.layout import AllBlocksCleared, Batch, Event, packed
from kvcache_sim.extras.live.events.publisher import Endpoint, Publisher
from kvcache_sim.extras.live.events.source import EventSource
from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.serving.sequence import ClosedRequest

#: Longest interval (s) at which vLLM's publisher reads its replay socket.
_REPLAY_S = 0.1
#: Hashes of forgotten blocks are dropped after this number of batches.
_FORGET_BATCHES = 4096


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Format of events: hash algorithm, layout, and whole or 64-bit hashes."""

    endpoint: Endpoint
    algorithm: str = "sha256"
    layout: str = "map"
    hashes_as_bytes: bool = False


class Announcer:
    """Publishes the changes of every machine's store as the simulation advances."""

    def __init__(self, fleet: Fleet, settings: EventSettings) -> None:
        self._fleet, self._settings = fleet, settings
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        hashes = BlockHashes(settings.algorithm)
        replicas = fleet.simulation.replicas
        self._stores = fleet.simulation.caches[: len(replicas)]
        self._sources = [EventSource(fleet.blocks, hashes, settings.hashes_as_bytes) for _ in replicas]
        self.publishers = [
            Publisher(self._context, settings.endpoint.of_machine(r.machine)) for r in replicas
        ]
        for store in self._stores:
            store.log_changes()
        self._batches = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start answering replays."""
        for publisher in self.publishers:
            publisher.serve_replay()
        self._timer = asyncio.get_running_loop().call_later(_REPLAY_S, self.start)

    def advanced(self, now_ns: int) -> None:
        """Publish the changes, one batch per machine."""
        for machine, (store, source) in enumerate(zip(self._stores, self._sources, strict=True)):
            if changes := store.take_changes():
                self._publish(machine, source.events(changes), now_ns)

    def cleared(self, now_ns: int) -> None:
        """Publish that every cache is empty."""
        for machine, (store, source) in enumerate(zip(self._stores, self._sources, strict=True)):
            store.take_changes()
            source.clear()
            self._publish(machine, [AllBlocksCleared()], now_ns)

    def _publish(self, machine: int, events: list[Event], now_ns: int) -> None:
        if not events:
            return
        batch = Batch(self._fleet.clock.date_s(now_ns), events, machine)
        self.publishers[machine].publish(packed(batch, self._settings.layout))
        self._batches += 1
        if self._batches % _FORGET_BATCHES == 0:
            for source in self._sources:
                source.forget()

    def close(self) -> None:
        """Publish the remaining changes and close the sockets."""
        if self._timer is not None:
            self._timer.cancel()
        self.advanced(self._fleet.ran_to_ns)
        for publisher in self.publishers:
            publisher.close()
        self._context.term()

    # -- notifications without events

    def arrived(self, ticket: Ticket, numbers: Sequence[int]) -> None:
        """Do nothing: blocks are announced as they are stored."""

    def on_abort(self, ticket: Ticket, at_ns: int) -> None:
        """Do nothing."""

    def closed(self, ticket: Ticket, sequence: ClosedRequest, now_ns: int) -> None:
        """Do nothing."""
