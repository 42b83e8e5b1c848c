"""A cluster: requests arrive, are routed, served on their machine, and bring the next turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.cache.digest import Digest
from kvcache_sim.cache.store import ARRIVE
from kvcache_sim.engine import ARRIVAL, NO_MACHINE, Engine
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica import Replica
from kvcache_sim.serving.router import Router
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace


class Cluster:
    """Feeds a trace to the replicas. Open-loop requests come at their arrival, in file order within an
    instant; a closed-loop turn comes its think time after the session's previous turn has finished.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: Sequence[Replica],
        router: Router,
        engine: Engine,
        recorder: Recorder,
        digests: Sequence[Digest],
    ) -> None:
        self.trace = trace
        self.replicas = replicas
        self.router = router
        self.engine = engine
        self.recorder = recorder
        #: Arrivals by machine; apart from the machine's own records, which may be made later.
        self.digests = digests
        self.arrived = 0
        self.closed = 0
        following = next_turns(trace)
        self._arrival_ns, self._input_tokens = view(trace.arrival_ns), view(trace.input_tokens)
        self._output_tokens, self._session = view(trace.output_tokens), view(trace.session)
        self._turn = view(trace.turn)
        self._conversational = view(trace.is_conversational_turn)
        self._next_turn = view(following)
        waits = (trace.think_ns != OPEN_LOOP) & follows(trace, following)
        opens = np.flatnonzero(~waits)
        self._order = opens[np.argsort(trace.arrival_ns[opens], kind="stable")]
        self._position = 0
        for replica in replicas:
            replica.on_close = self._closed

    def start(self) -> None:
        """Queue the first arrival."""
        self._queue_next()

    def _queue_next(self) -> None:
        if self._position < len(self._order):
            request = int(self._order[self._position])
            self._position += 1
            arrival = self._arrival_ns[request]
            self.engine.schedule(arrival, ARRIVAL, NO_MACHINE, self._arrive_in_order, request)

    def _arrive_in_order(self, request: int) -> None:
        self._arrive(request)
        self._queue_next()

    def _arrive(self, request: int) -> None:
        now = self.engine.now_ns
        self.arrived += 1
        sequence = SequenceState(
            request,
            now,
            self._input_tokens[request],
            self._output_tokens[request],
            self._session[request],
            self._turn[request],
            bool(self._conversational[request]),
        )
        machine = self.router.choose(sequence, self.replicas)
        replica = self.replicas[machine]
        self.digests[machine].record(ARRIVE, now, request, sequence.prompt_num_tokens)
        if replica.records_all:
            self.recorder.log_milestone("arrive", sequence, machine, now)
        if replica.can_ever_hold(sequence.total_kv_tokens):
            replica.arrive(sequence)
        else:
            sequence.status = Status.REJECTED
            self.recorder.close(sequence, machine)
            self._closed(sequence)

    def _closed(self, sequence: SequenceState) -> None:
        self.closed += 1
        following = self._next_turn[sequence.request]
        if following >= 0 and self.trace.think_ns[following] != OPEN_LOOP:
            at = self.engine.now_ns + int(self.trace.think_ns[following])
            self.engine.schedule(at, ARRIVAL, NO_MACHINE, self._arrive, following)


def view(column: NDArray[Any]) -> memoryview[int]:
    """Return a column whose entries are plain integers, read several times faster than array scalars."""
    return memoryview(column)  # type: ignore[arg-type]  # an array is a buffer; numpy's stubs do not say so


def next_turns(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return, for each request, the index of its session's next turn in file order, or −1."""
    following = np.full(len(trace), -1, np.int64)
    with_session = np.flatnonzero(trace.session != NO_SESSION)
    order = with_session[np.lexsort((with_session, trace.turn[with_session], trace.session[with_session]))]
    same = trace.session[order[1:]] == trace.session[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


def follows(
    trace: Trace, following: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which requests are some other request's next turn."""
    marks = np.zeros(len(trace), np.bool_)
    marks[following[following >= 0]] = True
    return marks
