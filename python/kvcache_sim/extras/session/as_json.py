"""The bill of sessions as JSON: counts and causes by call; no text of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.extras.session.bill import Bill, measured
from kvcache_sim.extras.session.breaks import causes_of
from kvcache_sim.extras.session.calls import Call, Predicted
from kvcache_sim.extras.session.screen import given
from kvcache_sim.extras.session.texts import Differing
from kvcache_sim.extras.session.what_if import WhatIf
from kvcache_sim.model.prices import PICODOLLARS

_NO_TEXTS: Mapping[str, Differing] = {}


def as_json(
    bill: Bill, what_if: Sequence[WhatIf] = (), texts: Mapping[str, Differing] = _NO_TEXTS
) -> dict[str, Any]:
    """Return the bill as a document.

    ``dollars`` is the predicted bill, which those of ``what_if`` (by flag) differ from; ``measured_dollars``
    that of the log's own counts. An edit that the log has not what it needs for has null, and a note.
    ``texts`` are of what differs first, by call.
    """
    base = what_if[0].base_picodollars if what_if else None
    return {
        "sessions": len({call.conversation.session for call in bill.calls}),
        "dollars": amount(bill.predicted_picodollars if base is None else base),
        "measured_dollars": amount(bill.picodollars),
        "includes_output": bill.has_output,
        "exact_calls": bill.exact,
        "later_calls": bill.later,
        "models": [
            {
                "model": line.model,
                "calls": line.calls,
                "measured": _counts(line.measured),
                "predicted": _counts(line.predicted),
                "dollars": amount(line.predicted_picodollars),
                "measured_dollars": amount(line.picodollars),
            }
            for line in bill.lines
        ],
        "causes": [
            {
                "cause": each.cause,
                "calls": each.calls,
                "lost_tokens": each.lost_tokens,
                "dollars": amount(each.picodollars),
                "labels_agree": each.agree,
                "labels_differ": each.differ,
            }
            for each in causes_of(bill)
        ],
        "what_if": {each.edit.flag: amount(each.picodollars) for each in what_if},
        "calls": [
            _call(call, each) | ({"texts": texts[call.id]._asdict()} if call.id in texts else {})
            for call, each in zip(bill.calls, bill.predicted, strict=True)
        ],
        "notes": [*bill.said, *given(what_if)],
    }


def amount(picodollars: int | None) -> float | None:
    """Return picodollars as dollars."""
    return None if picodollars is None else picodollars / PICODOLLARS


def _counts(counts: Any) -> dict[str, int]:
    return {name: getattr(counts, name) for name in ("read", "write_5m", "write_1h", "write_30m", "uncached")}


def _call(call: Call, each: Predicted) -> dict[str, Any]:
    return {
        "id": call.id,
        "session": call.conversation.session,
        "start_ns": call.start_ns,
        "model": call.model,
        "read": each.read,
        "write": each.written,
        "uncached": each.uncached,
        "cause": each.cause,
        "differs": each.differs,
        "lost_tokens": each.lost_tokens,
        "doubt": each.doubt,
        "measured_read": measured(call).read,
        "measured_write": measured(call).written,
        "label": None if call.label is None else call.label.kind,
    }
