"""Chunks with times, sessions and block ids: the requests of a workload in order of generation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.units import LAST_NS
from kvcache_sim.base.values import Value
from kvcache_sim.workload.generate.chains import expand
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws
from kvcache_sim.workload.generate.settings import Workload
from kvcache_sim.workload.rows import flat_positions
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, OPEN_LOOP


class Requests(Value):
    """Requests in columns; ``number`` and ``after`` count in order of generation over the whole workload.

    ``block_ids`` are unique over the whole workload, not yet dense.
    """

    number: NDArray[np.int64]
    arrival_ns: NDArray[np.int64]
    think_ns: NDArray[np.int64]
    after: NDArray[np.int64]
    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    history_tokens: NDArray[np.int64]
    id_counts: NDArray[np.int64]
    block_ids: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.number)

    def take(self, rows: NDArray[np.int64]) -> Requests:
        """Return some of the requests in the given order."""
        starts = np.cumsum(self.id_counts) - self.id_counts
        at = flat_positions(starts[rows], self.id_counts[rows])
        names = [name for name in Requests.__struct_fields__ if name != "block_ids"]
        columns = {name: getattr(self, name)[rows] for name in names}
        return Requests(**columns, block_ids=self.block_ids[at])

    @staticmethod
    def joined(parts: list[Requests]) -> Requests:
        """Return the concatenation of several parts."""
        return Requests(
            **{name: np.concatenate([getattr(p, name) for p in parts]) for name in Requests.__struct_fields__}
        )


class Future(Value):
    """Bounds on the requests that are not generated yet.

    None arrives before ``horizon_ns``; of the existing requests they may only wait for ``waited_for``.
    """

    horizon_ns: int
    waited_for: tuple[int, ...]


def make_requests(settings: Workload, seed: int) -> Iterator[tuple[Requests, Future]]:
    """Yield a workload chunk by chunk until ``settings.requests`` are generated; the last unit may be cut.

    The content of a chunk depends only on the seed and its index; only the clock and the counters carry over.
    Memory: one chunk, and one number per concurrent user. Raises UsageError if the settings generate no
    requests.
    """
    shared, fresh = settings.shared(seed)
    clock = _Clock(settings)
    made = sessions = index = 0
    while made < settings.requests:
        chunk = settings.chunk(shared, Draws(seed, index))
        if not len(chunk):
            raise UsageError(
                "no request fits the limits",
                where="workload.first_input_tokens",
                hint="every first prompt is longer than the window",
            )
        chunk = chunk.take(np.arange(min(len(chunk), settings.requests - made)))
        start_ns, waits_for = clock.start(chunk, stream(seed, f"workload.arrivals.{index}"), made)
        think_ns = np.full(len(chunk), OPEN_LOOP)
        after = np.full(len(chunk), NO_REQUEST)
        if settings.loop == "closed":
            follows = (chunk.turn > 0) | (chunk.after != NO_REQUEST)
            think_ns = np.where(follows, chunk.gap_ns, OPEN_LOOP)
            after = np.where(chunk.after != NO_REQUEST, chunk.after + made, NO_REQUEST)
            next_unit = waits_for != NO_REQUEST
            think_ns[next_unit] = 0
            after[next_unit] = waits_for[next_unit]
        id_counts, block_ids, fresh = expand(
            chunk.chains, chunk.chain, chunk.input_tokens, settings.block_size, fresh
        )
        if settings.tenants > 1:
            drawn = stream(seed, f"workload.tenants.{index}").integers(settings.tenants, size=UNITS)
            block_ids = block_ids * settings.tenants + np.repeat(drawn[chunk.unit], id_counts)
        requests = Requests(
            number=made + np.arange(len(chunk)),
            arrival_ns=_in_time(start_ns, chunk.offset_ns),
            think_ns=think_ns,
            after=after,
            session=np.where(chunk.session == NO_SESSION, NO_SESSION, chunk.session + sessions),
            turn=chunk.turn,
            input_tokens=chunk.input_tokens,
            output_tokens=chunk.output_tokens,
            history_tokens=chunk.history_tokens,
            id_counts=id_counts,
            block_ids=block_ids,
        )
        yield requests, clock.future()
        made += len(chunk)
        sessions += int(chunk.session.max()) + 1
        index += 1


def _in_time(start_ns: NDArray[np.int64], offset_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the arrival times of requests; UsageError beyond the end of simulated time."""
    if start_ns.max() > LAST_NS or offset_ns.max() > LAST_NS:
        raise UsageError(
            "arrivals beyond 73 years", where="workload.arrivals", hint="raise the rate, or ask for fewer"
        )
    return start_ns + offset_ns


class _Clock:
    """Start times of units: their arrivals, or the end of the previous unit of the same user."""

    def __init__(self, settings: Workload) -> None:
        self._arrivals = settings.arrivals
        self._users = settings.concurrency
        self._exposure = 0.0
        self._units = 0
        self._end_ns: list[int] = []
        self._last_request: list[int] = []
        self._last_start_ns = 0

    def start(
        self, chunk: Chunk, rng: np.random.Generator, made: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each request's unit start in ns and, for a unit's first, the request it waits for."""
        exposure = self._exposure + np.cumsum(self._arrivals.gaps(rng, UNITS))
        self._exposure = float(exposure[-1])
        start_ns = self._arrivals.times_ns(exposure)
        waits_for = np.full(len(chunk), NO_REQUEST)
        if self._users:
            first = np.flatnonzero(np.diff(chunk.unit, prepend=-1))
            last = np.append(first[1:], len(chunk)) - 1
            for a, b in zip(first.tolist(), last.tolist(), strict=True):
                self._take_turn(chunk, a, b, start_ns, waits_for, made)
        else:
            self._last_start_ns = int(start_ns[-1])
        return start_ns[chunk.unit], waits_for

    def future(self) -> Future:
        """Return the bounds on later requests."""
        if not self._users:
            return Future(self._last_start_ns, ())
        all_started = len(self._end_ns) == self._users
        return Future(min(self._end_ns) if all_started else 0, tuple(self._last_request))

    def _take_turn(
        self,
        chunk: Chunk,
        first: int,
        last: int,
        start_ns: NDArray[np.int64],
        waits_for: NDArray[np.int64],
        made: int,
    ) -> None:
        unit = chunk.unit[first]
        user = self._units % self._users
        self._units += 1
        if user == len(self._end_ns):
            self._end_ns.append(0)
            self._last_request.append(NO_REQUEST)
        else:
            start_ns[unit] = self._end_ns[user]
            waits_for[first] = self._last_request[user]
        self._end_ns[user] = int(start_ns[unit] + chunk.offset_ns[last])
        self._last_request[user] = made + last
