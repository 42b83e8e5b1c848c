"""The sampler: tier occupancy, queues and channels at even simulated times, in long form."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kvcache_sim.cache.channel import Link
from kvcache_sim.engine import NO_MACHINE, SAMPLE, Engine
from kvcache_sim.metrics.event_log import TextCoder
from kvcache_sim.metrics.run import CodedText, ColumnData
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.tiers import TIERS

#: Samples of a run of known length.
SAMPLES = 500
#: Shortest time between two: less than most scheduler steps take, and requests that all come at once give a
#: span of no time.
LEAST_INTERVAL_NS = 10_000_000

#: What is sampled of a machine, of each of its tiers, and of a channel, in this order.
_REPLICA = ("queue", "running", "loading", "output_tokens")
_ROOM = ("free", "active", "cached", "in_flight")
_CHANNEL = ("busy_ns", "queued_ns", "bytes")


class Sampler:
    """Samples every ``interval_ns``, at least LEAST_INTERVAL_NS, until ``done()``; it only looks.

    At each 2·SAMPLES samples the interval doubles.
    """

    def __init__(
        self,
        engine: Engine,
        replicas: Sequence[AnyReplica],
        channels: Mapping[str, Link],
        interval_ns: int,
        done: Callable[[], bool],
    ) -> None:
        self.engine, self.replicas, self.channels = engine, replicas, channels
        self.interval_ns = max(interval_ns, LEAST_INTERVAL_NS)
        self.done = done
        self._times, self._values, self._widths = array("q"), array("q"), array("q")

    def start(self) -> None:
        """Queue the first sample."""
        self.engine.schedule(self.engine.now_ns, SAMPLE, NO_MACHINE, self._sample)

    def _sample(self, _: object) -> None:
        now, values = self.engine.now_ns, self._values
        self._times.append(now)
        already = len(values)
        for replica in self.replicas:
            replica.catch_up(now + 1)
            values.extend(replica.counts())
            for level in range(replica.tiers):
                values.extend(replica.store.room(level)[: len(_ROOM)])
        for channel in self.channels.values():
            values.extend((min(channel.busy_ns, now), channel.queued_ns, channel.sent_bytes))
        self._widths.append(len(values) - already)
        if len(self._times) % (2 * SAMPLES) == 0:
            self.interval_ns *= 2
        if not self.done() and not self.engine.idle:  # where nothing can happen, I1 is broken
            self.engine.schedule(now + self.interval_ns, SAMPLE, NO_MACHINE, self._sample)

    def _rows(self) -> list[tuple[int, str]]:
        """Return machine and name of the values of one sample, in their order."""
        rows = []
        for replica in self.replicas:
            tiers = [f"{tier}.{part}" for tier in TIERS[: replica.tiers] for part in _ROOM]
            rows += [(replica.machine, name) for name in (*_REPLICA, *tiers)]
        return rows + [(NO_MACHINE, f"channel.{name}.{part}") for name in self.channels for part in _CHANNEL]

    def columns(self) -> dict[str, ColumnData]:
        """Return the columns of ``series``."""
        rows, coder = self._rows(), TextCoder()
        names = np.array([coder.code(name) for _, name in rows], np.int32)
        machines = np.array([machine for machine, _ in rows], np.int16)
        # Channels between machines are made when first used: an earlier sample lacks the last ones.
        widths = np.frombuffer(self._widths, np.int64)
        row = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        return {
            "time_ns": np.repeat(np.frombuffer(self._times, np.int64), widths),
            "machine": machines[row],
            "name": CodedText(names[row], tuple(coder.words)),
            "value": np.frombuffer(self._values, np.int64),
        }
