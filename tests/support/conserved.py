"""Conservation in a fleet that changes: every request has a row, and every token is accounted for."""

from __future__ import annotations

import numpy as np
from kvcache_sim.metrics.columns import STATUSES


def check_conserved(scenario, made) -> None:
    """Every request that arrived has one row, and every token of the trace is finished, failed or rejected."""
    rows, trace, counts = made.run.requests, made.trace, made.summary["requests"]
    assert counts["arrived"] == len(trace) == sum(counts[name] for name in STATUSES)
    assert counts["aborted"] == 0
    assert np.array_equal(rows["request"], np.arange(len(trace)))
    by_status = [int((rows["status"] == status).sum()) for status in range(len(STATUSES))]
    assert by_status == [counts[name] for name in STATUSES]
    for column, of_trace in (("input_tokens", trace.input_tokens), ("output_tokens", trace.output_tokens)):
        assert sum(int(rows[column][rows["status"] == s].sum()) for s in range(len(STATUSES))) == int(
            of_trace.sum()
        )
    lost = {
        event.machine: event.at_ns for event in scenario.settings.membership.events if event.change == "lose"
    }
    for machine, at_ns in lost.items():
        done = rows["machine"] == machine
        assert (rows["finish_ns"][done & (rows["status"] == 0)] <= at_ns).all()
