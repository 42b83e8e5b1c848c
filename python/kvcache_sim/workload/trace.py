"""A trace in columns: the internal form of requests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.values import Value, field

NO_SESSION = -1
OPEN_LOOP = -1
NO_REQUEST = -1
NOT_GIVEN = -1
#: Columns that every trace has, and the meaning of an empty optional column.
COLUMNS = ("arrival_ns", "input_tokens", "output_tokens", "turn", "think_ns", "is_conversational_turn")
WHERE_EMPTY = {"history_tokens": NOT_GIVEN, "priority": 0, "named_tokens": 0, "abort_after_ns": NOT_GIVEN}
NO_PAIRS: NDArray[np.int32] = np.empty((0, 2), np.int32)


class Trace(Value):
    """Requests as columns, one entry per request, in file order (file order breaks ties of arrival).

    Block ids are *dense*: the k-th distinct id of the trace in order of first appearance is k, whatever
    its text was; ``id_names`` has the original. Ids are chained: an id identifies its block's content and all
    before it. ``block_ids[id_offsets[i]:id_offsets[i+1]]`` are the ids of request i, ``block_size`` tokens
    each, the last possibly partial. Cost: 4 bytes per id reference and about 50 bytes per request.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    id_offsets: NDArray[np.int64]  # length n + 1
    block_ids: NDArray[np.uint32]
    block_size: int  # tokens per id
    #: Index of the session, in order of first appearance; NO_SESSION without one.
    session: NDArray[np.int32]
    #: Turn within its session, from 0.
    turn: NDArray[np.int32]
    #: Closed loop: the request arrives this long after the finish of the request it waits for (see
    #: ``sessions.predecessors``), and ``arrival_ns`` is ignored; OPEN_LOOP if the arrival applies.
    think_ns: NDArray[np.int64]
    #: Label of the generator or file (seed 000); it has no influence on results.
    is_conversational_turn: NDArray[np.bool_]
    #: Original id of each dense id (int64 or uint64 array, or a list of strings); empty when the same.
    id_names: NDArray[np.int64] | NDArray[np.uint64] | list[str] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )
    session_names: list[str] = field(default_factory=list)
    #: Members of each row without a column, as JSON text without braces; empty unless requested.
    extra: list[str] = field(default_factory=list)
    #: Request that a closed-loop request waits for, if it is not the previous turn of its session (a
    #: sub-agent waits for its parent, a user's next session for the last one); NO_REQUEST elsewhere. An empty
    #: array means NO_REQUEST for all.
    after: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    #: Additional requests that a request waits for: pairs of (request, awaited request). It arrives
    #: ``think_ns`` after the last of them has finished.
    also_after: NDArray[np.int32] = field(default_factory=lambda: NO_PAIRS)
    #: Prompt tokens that repeat earlier turns of the session (as far as a context window kept them);
    #: NOT_GIVEN if the source does not state it. An empty array means NOT_GIVEN for all.
    history_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Priority for queues with that order, smallest first; an empty array means 0 for all.
    priority: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Tokens of prompt and answer that the ids cover, if an answer's blocks have ids too; 0 if they end with
    #: the prompt. An empty array means 0 for all.
    named_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Time from arrival until the client aborts the request; NOT_GIVEN if it waits for the whole answer. An
    #: empty array means NOT_GIVEN for all.
    abort_after_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Oldest tokens that a context window removed from each prompt, not included in ``input_tokens``; an
    #: empty array means 0 for all.
    dropped_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Tenant of each request, as an index of ``tenant_names``; empty without tenants.
    tenant: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    tenant_names: list[str] = field(default_factory=list)
    #: Model of each request, as an index of the fleet's models; empty without models.
    model: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    #: Names of the adapters; empty without adapters.
    adapter_names: list[str] = field(default_factory=list)
    #: Retention hint for a request's blocks after it finishes (``workload.retention``), and their time to
    #: live, NOT_GIVEN without limit; empty without hints.
    retention: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    live_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    source: str = ""
    sha256: str = ""
    #: Counted notes of the reader, one line each.
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_ns)

    def session_id(self, session: int) -> str | None:
        """Return the name of a session (its index if sessions have no names), None for NO_SESSION."""
        if session == NO_SESSION:
            return None
        return self.session_names[session] if self.session_names else str(session)

    @property
    def distinct_ids(self) -> int:
        """Number of distinct block ids of the trace."""
        return int(self.block_ids.max()) + 1 if len(self.block_ids) else 0


def view(column: NDArray[Any]) -> memoryview[int]:
    """Return a column as plain integers, several times faster to read than array scalars."""
    return memoryview(column)  # type: ignore[arg-type]  # an array is a buffer; numpy's stubs lack that
