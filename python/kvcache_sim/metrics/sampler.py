"""The sampler: tier occupancy, queues and channels at even simulated times, in long form."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kvcache_sim.cache.channel import Link
from kvcache_sim.cache.settings import TIERS
from kvcache_sim.engine import NO_MACHINE, SAMPLE, Engine
from kvcache_sim.metrics.event_log import TextCoder
from kvcache_sim.metrics.run import CodedText, ColumnData
from kvcache_sim.serving.replica import Replica

#: Samples of a run of known length.
SAMPLES = 500


class Sampler:
    """Samples every ``interval_ns`` until ``done()``; it only looks. Past 2·SAMPLES the interval doubles."""

    def __init__(
        self,
        engine: Engine,
        replicas: Sequence[Replica],
        channels: Mapping[str, Link],
        interval_ns: int,
        done: Callable[[], bool],
    ) -> None:
        self.engine, self.replicas, self.channels = engine, replicas, channels
        self.interval_ns = max(interval_ns, 1)
        self.done = done
        self._taken = 0
        self._coder = TextCoder()
        self._times, self._machines = array("q"), array("h")
        self._names, self._values = array("i"), array("q")

    def start(self) -> None:
        """Queue the first sample."""
        self.engine.schedule(self.engine.now_ns, SAMPLE, NO_MACHINE, self._sample)

    def _sample(self, _: object) -> None:
        now = self.engine.now_ns
        for replica in self.replicas:
            replica.catch_up(now + 1)
            rows = {
                "queue": len(replica.entrance.waiting),
                "running": len(replica.running),
                "loading": len(replica.entrance.loading) + len(replica.entrance.loaded),
                "output_tokens": replica.batch.generated_tokens,
            }
            for level, tier in enumerate(TIERS[: replica.tiers]):
                room = replica.store.room(level)
                rows |= {
                    f"{tier}.{part}": n
                    for part, n in zip(("free", "active", "cached", "in_flight"), room, strict=False)
                }
            for name, value in rows.items():
                self._row(now, replica.machine, name, value)
        for name, channel in self.channels.items():
            self._row(now, NO_MACHINE, f"channel.{name}.busy_ns", min(channel.busy_ns, now))
            self._row(now, NO_MACHINE, f"channel.{name}.queued_ns", channel.queued_ns)
            self._row(now, NO_MACHINE, f"channel.{name}.bytes", channel.sent_bytes)
        self._taken += 1
        if self._taken % (2 * SAMPLES) == 0:
            self.interval_ns *= 2
        if not self.done():
            self.engine.schedule(now + self.interval_ns, SAMPLE, NO_MACHINE, self._sample)

    def _row(self, now: int, machine: int, name: str, value: int) -> None:
        self._times.append(now)
        self._machines.append(machine)
        self._names.append(self._coder.code(name))
        self._values.append(value)

    def columns(self) -> dict[str, ColumnData]:
        """Return the columns of ``series``."""
        return {
            "time_ns": np.frombuffer(self._times, np.int64),
            "machine": np.frombuffer(self._machines, np.int16),
            "name": CodedText(np.frombuffer(self._names, np.int32), tuple(self._coder.words)),
            "value": np.frombuffer(self._values, np.int64),
        }
