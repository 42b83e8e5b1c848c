"""Tokens and closed requests of a live run, reported to a listener in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Protocol

from kvcache_sim import _core
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.sequence import ClosedRequest, Status
from kvcache_sim.tiers import PLACES

#: Columns of a request's row by the field of ``ClosedRequest`` that has the same value.
_FIELDS = {
    "request": "request",
    "arrival_ns": "arrival_ns",
    "prompt_num_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "machine": "machine",
    "decode_machine": "decode_machine",
    "preemptions": "preemptions",
    "recomputed_tokens": "recomputed_tokens",
    "first_token_ns": "first_token_ns",
    "finish_ns": "finish_ns",
    "client_ns": "client_ns",
    "queue_ns": "queue_ns",
    "lookup_ns": "lookup_ns",
    "prefill_ns": "prefill_ns",
    "cached_prefix_length_used": "cached_prefix_length_used",
    "num_tokens_requiring_prefill": "num_tokens_actually_prefilled",
}


class Listener(Protocol):
    """Takes the tokens of a live run, and the requests that leave it."""

    def tokens(self, requests: Sequence[int], now_ns: int) -> None:
        """Take note of the next token of some requests' answers."""

    def closed(self, sequence: ClosedRequest, now_ns: int) -> None:
        """Take note of a request that is finished, or was aborted."""


class Outputs:
    """Reports what comes out of all machines to a listener; ``columns`` names those of a request's row.

    Cost: a native call a report, and a few µs a closed request.
    """

    def __init__(self, replicas: Sequence[NativeReplica], columns: Sequence[str], listener: Listener) -> None:
        self._listener = listener
        self._log = _core.OutputLog()
        self._replicas = replicas
        self._row = Struct(f"{len(columns)}q")
        self._fields = [(field, columns.index(column)) for field, column in _FIELDS.items()]
        self._cached = [columns.index(f"cached_{place}_tokens") for place in PLACES]
        self._status = columns.index("status")
        for replica in replicas:
            replica.log_outputs(self._log)

    def report(self) -> None:
        """Report what came out of the machines since the last call."""
        listener = self._listener
        left: dict[int, ClosedRequest] = {}
        for time_ns, machine, tokens, closed in self._log.take():
            if tokens:
                listener.tokens(tokens, time_ns)
            for request in closed:
                if request not in left:
                    left |= self._states(self._replicas[machine].take_rows())
                listener.closed(left.pop(request), time_ns)

    def _states(self, rows: bytes) -> dict[int, ClosedRequest]:
        """Return closed requests as their rows have them, by number."""
        states = map(self._state, self._row.iter_unpack(rows))
        return {state.request: state for state in states}

    def _state(self, row: tuple[int, ...]) -> ClosedRequest:
        state = ClosedRequest(-1, 0, 0, 0)
        for field, column in self._fields:
            setattr(state, field, row[column])
        state.status = Status[STATUSES[row[self._status]].upper()]
        state.cached_tokens_by_place = tuple([row[column] for column in self._cached])
        return state
