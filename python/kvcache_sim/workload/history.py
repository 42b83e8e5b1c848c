"""Traces whose rows hold the new input of a turn only: the history in front of it is put back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvcache_sim.errors import TraceError
from kvcache_sim.workload.sessions import previous_turns
from kvcache_sim.workload.trace import NO_REQUEST, NOT_TOLD, Trace


def with_history(trace: Trace) -> Trace:
    """Return the trace with whole prompts: inputs 0 … t and answers 0 … t − 1 of the session at turn t.

    Rows without a session stay as they are. The trace must have no block ids yet, for those would name the
    new input alone; ``missing_ids.fill_missing_ids`` gives them afterwards. Raises TraceError naming the
    first row with ids. Source: seed 000, 4.1 (``new_input_only``).
    """
    counts = np.diff(trace.id_offsets)
    if counts.any():
        row = int(np.flatnonzero(counts)[0])
        raise TraceError(
            "a row with the new input only cannot have hash_ids",
            where=f"{trace.source}: row {row}",
            hint="hash_ids name whole prompts: leave them out, or write whole prompts",
        )
    prompt = trace.input_tokens.copy()
    history = np.full(len(trace), NOT_TOLD, np.int64)
    previous = previous_turns(trace)
    # In order of turns, whatever the order of the rows.
    for row in np.lexsort((trace.turn, trace.session)).tolist():
        before = previous[row]
        if before != NO_REQUEST:
            history[row] = prompt[before] + trace.output_tokens[before]
            prompt[row] += history[row]
    return replace(trace, input_tokens=prompt, history_tokens=history)
