"""The sampler: tier occupancy, queues and channels at even simulated times, in long form."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.channels.channel import Link
from kvcache_sim.engine import NO_MACHINE, SAMPLE, Engine
from kvcache_sim.metrics.columns import SERIES_COLUMNS
from kvcache_sim.metrics.event_log import TextCoder
from kvcache_sim.metrics.parts import Parts
from kvcache_sim.metrics.run import CodedText, ColumnData
from kvcache_sim.serving.replica.contract import MeasuredReplica

#: Samples of a run of known length.
SAMPLES = 500
#: Shortest interval: less than most scheduler steps; a trace whose requests all arrive at once has span 0.
LEAST_INTERVAL_NS = 10_000_000

#: Sampled values of a machine, of each of its tiers, and of a channel, in this order.
_REPLICA = ("queue", "running", "loading", "output_tokens")
_OCCUPANCY = ("free", "held", "cached", "in_flight")
_CHANNEL = ("busy_ns", "queued_ns", "bytes")
#: Rows converted to columns at a time, unless a sample has more.
_PART_ROWS = 1 << 15


class Sampler:
    """Samples every ``interval_ns``, at least LEAST_INTERVAL_NS, until ``done()``; changes nothing.

    After each 2·SAMPLES samples the interval doubles. Cost: one native call per sample over replicas of the
    core; 8 bytes per value.
    """

    def __init__(
        self,
        engine: Engine,
        replicas: Sequence[MeasuredReplica],
        channels: Mapping[str, Link],
        interval_ns: int,
        done: Callable[[], bool],
    ) -> None:
        self.engine, self.replicas, self.channels = engine, replicas, channels
        self.interval_ns = max(interval_ns, LEAST_INTERVAL_NS)
        self.done = done
        self._look = _look_at(replicas)
        self._queued = False
        #: Lost machines, which are no longer sampled.
        self._gone: set[int] = set()
        #: By sample; the others by sample and machine, and by sample and channel.
        self._times, self._widths = array("q"), array("q")
        self._machines, self._links = bytearray(), array("q")

    def start(self) -> None:
        """Queue the first sample."""
        self._queue(self.engine.now_ns)

    def wake(self) -> None:
        """Queue the next sample if none is queued: the simulation is active again."""
        if not self._queued:
            self._queue(self.engine.now_ns + self.interval_ns)

    def catch_up(self) -> None:
        """Bring all machines to the current time, as a sample does."""
        self._look(self.engine.now_ns + 1)

    def _queue(self, at_ns: int) -> None:
        self.engine.schedule(at_ns, SAMPLE, NO_MACHINE, self._sample)
        self._queued = True

    def _sample(self, _: object) -> None:
        self._queued = False
        now, links = self.engine.now_ns, self._links
        self._times.append(now)
        looked = self._look(now + 1)
        self._machines += self._with_gone(looked) if self._gone else looked
        for channel in self.channels.values():
            links.extend((min(channel.busy_ns, now), channel.queued_ns, channel.sent_bytes))
        self._widths.append(len(_CHANNEL) * len(self.channels))
        if len(self._times) % (2 * SAMPLES) == 0:
            self.interval_ns *= 2
        if not self.done() and not self.engine.idle:  # without a next event, I1 is violated
            self._queue(now + self.interval_ns)

    def leave_out(self, machine: int) -> None:
        """Sample zeros for a lost machine from now on."""
        self._gone.add(machine)
        left = [replica for replica in self.replicas if replica.machine not in self._gone]
        self._look = _look_at(left) if left else lambda _: b""

    def _with_gone(self, looked: bytes) -> bytes:
        parts, start = [], 0
        for replica in self.replicas:
            width = 8 * (len(_REPLICA) + len(_OCCUPANCY) * replica.tiers)
            if replica.machine in self._gone:
                parts.append(bytes(width))
            else:
                parts.append(looked[start : start + width])
                start += width
        return b"".join(parts)

    def _rows(self) -> list[tuple[int, str]]:
        """Return machine and name of the values of one sample, in their order."""
        rows = []
        for replica in self.replicas:
            tiers = [f"{tier}.{part}" for tier in TIERS[: replica.tiers] for part in _OCCUPANCY]
            rows += [(replica.machine, name) for name in (*_REPLICA, *tiers)]
        return rows + [(NO_MACHINE, f"channel.{name}.{part}") for name in self.channels for part in _CHANNEL]

    def columns(self) -> Parts:
        """Return the columns of ``series``."""
        return Parts(tuple(SERIES_COLUMNS), self._parts)

    def _parts(self) -> Iterator[dict[str, ColumnData]]:
        rows, coder = self._rows(), TextCoder()
        names = np.array([coder.code(name) for _, name in rows], np.int32)
        machines = np.array([machine for machine, _ in rows], np.int16)
        words, times = tuple(coder.words), np.frombuffer(self._times, np.int64)
        for start, values in self._values():
            samples, width = values.shape
            yield {
                "time_ns": np.repeat(times[start : start + samples], width),
                "machine": np.tile(machines[:width], samples),
                "name": CodedText(np.tile(names[:width], samples), words),
                "value": values.reshape(-1),
            }

    def _values(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield (first sample, values by sample and row) of samples that have the same rows.

        Channels between machines are created on first use: earlier samples lack the last ones.
        """
        count = len(self._times)
        machines = np.frombuffer(self._machines, np.int64).reshape(count, -1)
        widths = np.frombuffer(self._widths, np.int64)
        before = np.concatenate([[0], np.cumsum(widths)])
        links = np.frombuffer(self._links, np.int64)
        changes = (np.flatnonzero(widths[1:] != widths[:-1]) + 1).tolist()
        for first, end in zip([0, *changes], [*changes, count], strict=True):
            step = max(1, _PART_ROWS // (machines.shape[1] + int(widths[first])))
            for start in range(first, end, step):
                stop = min(start + step, end)
                link_values = links[before[start] : before[stop]].reshape(stop - start, -1)
                yield start, np.concatenate([machines[start:stop], link_values], axis=1)


def _look_at(replicas: Sequence[MeasuredReplica]) -> Callable[[int], bytes]:
    """Return a function that brings all machines to a time and returns ``_core.Sampled.sample``'s values."""
    native = [core for r in replicas if isinstance(core := r.load, _core.Replica)]
    if len(native) == len(replicas):
        return _core.Sampled(native, [replica.tiers for replica in replicas]).sample

    def one_by_one(now_ns: int) -> bytes:
        values = array("q")
        for replica in replicas:
            replica.catch_up(now_ns)
            values.extend(replica.counts())
            for level in range(replica.tiers):
                values.extend(replica.store.occupancy(level)[: len(_OCCUPANCY)])
        return values.tobytes()

    return one_by_one
