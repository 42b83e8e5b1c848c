"""The rows, events and channel demand of a run of the specification, measured from outside.

A layered or FIFO channel counts the bytes of each queued job by second of simulated time. A step that
computes while KV arrives counts the bytes that it loads over each channel and its compute time.
"""

from __future__ import annotations

from array import array
from collections import Counter
from struct import Struct
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.metrics.columns import EVENT_COLUMNS, EVENT_KINDS, OUTCOMES, REQUEST_COLUMNS, TTFT_PARTS
from kvcache_sim.metrics.recorder import RunRecorder
from kvcache_sim.spec.batch import NextStep
from kvcache_sim.spec.channels import (
    Channels,
    FifoChannel,
    LayeredChannel,
    LayeredJob,
    Link,
    Size,
    Transmission,
)
from kvcache_sim.spec.mover import Transfer
from kvcache_sim.spec.records import ROW_FIELDS, Event, Records
from kvcache_sim.spec.simulator import Machine, Simulator

_ROW = Struct(f"{len(REQUEST_COLUMNS)}q")
_EVENT = Struct(f"{len(EVENT_COLUMNS)}q")


def records_into(recorder: RunRecorder) -> Records:
    """Return the records of a ``spec/`` run whose rows and events go to ``recorder``.

    Raises UsageError for a part of TTFT that the specification does not take.
    """
    for part in TTFT_PARTS:
        if f"{part}_ns" not in ROW_FIELDS:
            hint = "take its time in spec/request.py and spec/records.py, or run the core"
            raise UsageError(f"the specification has no part {part!r} of TTFT", where="--engine", hint=hint)

    def take_row(row: dict[str, int]) -> None:
        recorder.add_rows(_ROW.pack(*(row[name] for name in REQUEST_COLUMNS)))

    def take_event(event: Event) -> None:
        kind = EVENT_KINDS.index(event.kind)
        # The code after the outcomes means no detail.
        detail = event.outcome if event.outcome >= 0 else len(OUTCOMES)
        row = (
            event.now_ns,
            0,
            event.machine,
            kind,
            event.request,
            detail,
            event.tokens,
            0,
            event.left_tokens,
        )
        recorder.add_events(_EVENT.pack(*row), event.now_ns)

    return Records(take_row, take_event)


class Demand:
    """The demand on a channel, in bytes per second.

    ``hiding`` has a sample per step that computes while KV arrives: the rate that would hide all layers but
    the first. ``offered`` has a sample per second of simulated time.
    """

    def __init__(self) -> None:
        self.hiding = array("q")
        self.offered = array("q")
        self._second = -1

    def ask(self, size_bytes: int, now_ns: int) -> None:
        """Record a job that is queued now."""
        if now_ns // NS_PER_S != self._second:
            self._second = now_ns // NS_PER_S
            self.offered.append(0)
        self.offered[-1] += size_bytes

    def hide(self, size_bytes: int, compute_ns: int) -> None:
        """Record the bytes that one step loads over the channel while it computes."""
        self.hiding.append(min(-(-size_bytes * NS_PER_S // max(compute_ns, 1)), 2**63 - 1))


class _Measured(Link):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.demand = Demand()


class _MeasuredFifo(_Measured, FifoChannel):
    def transmit(self, size: Size, now_ns: int, feed: Transmission | None = None) -> Transmission:
        self.demand.ask(size[0], now_ns)
        return super().transmit(size, now_ns, feed)


class _MeasuredLayered(_Measured, LayeredChannel):
    def submit(self, size: Size, *job: Any) -> LayeredJob:
        self.demand.ask(size[0], self.engine.now_ns)
        return super().submit(size, *job)


class _MeasuredChannels(Channels):
    fifo_class, layered_class = _MeasuredFifo, _MeasuredLayered


class _MeasuredStep(NextStep):
    def _begin(self, begin_ns: int) -> None:
        loads: Counter[Any] = Counter()
        for transfer in (transfer for late in self.late for transfer in late.transfers):
            hop: Transfer | None = transfer
            while hop is not None:
                loads[hop.channel] += hop.size_bytes
                hop = hop.below
        for channel, size in loads.items():
            channel.demand.hide(size, self.batch.step_ns())
        super()._begin(begin_ns)


class _MeasuredMachine(Machine):
    next_step_class = _MeasuredStep


class MeasuredSimulator(Simulator):
    """A simulator whose channels and steps measure demand."""

    machine_class, channels_class = _MeasuredMachine, _MeasuredChannels
