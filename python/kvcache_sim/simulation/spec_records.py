"""Rows and events of the specification, packed for the recorder of a run."""

from __future__ import annotations

from struct import Struct

from kvcache_sim.metrics.columns import EVENT_COLUMNS, EVENT_KINDS, OUTCOMES, REQUEST_COLUMNS
from kvcache_sim.metrics.recorder import RunRecorder
from kvcache_sim.spec.records import Event, Records

_ROW = Struct(f"{len(REQUEST_COLUMNS)}q")
_EVENT = Struct(f"{len(EVENT_COLUMNS)}q")


def records_into(recorder: RunRecorder) -> Records:
    """Return the records of a run of ``spec/`` whose rows and events go to ``recorder``."""

    def take_row(row: dict[str, int]) -> None:
        recorder.add_rows(_ROW.pack(*(row[name] for name in REQUEST_COLUMNS)))

    def take_event(event: Event) -> None:
        kind = EVENT_KINDS.index(event.kind)
        # Behind the outcomes comes the code of no detail.
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
