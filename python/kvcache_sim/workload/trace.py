"""A trace in columns: the one form in which requests live inside kvsim."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.values import Value, field

NO_SESSION = -1
OPEN_LOOP = -1
NO_REQUEST = -1
NOT_GIVEN = -1
#: Columns that every trace has, and what an empty one of the others says throughout.
COLUMNS = ("arrival_ns", "input_tokens", "output_tokens", "turn", "think_ns", "is_conversational_turn")
WHERE_EMPTY = {"history_tokens": NOT_GIVEN, "priority": 0, "named_tokens": 0, "abort_after_ns": NOT_GIVEN}
NO_PAIRS: NDArray[np.int32] = np.empty((0, 2), np.int32)


class Trace(Value):
    """Requests as columns, one entry a request, in file order (file order breaks ties of arrival).

    Block ids are *dense*: the k-th distinct id of the trace in order of first appearance is k, whatever
    its text was; ``id_names`` keeps the original. Ids are chained: an id names its block's content and all
    before it. ``block_ids[id_offsets[i]:id_offsets[i+1]]`` are the ids of request i, ``block_size`` tokens
    each, the last possibly partial. Cost: 4 bytes an id reference and about 50 bytes a request.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    id_offsets: NDArray[np.int64]  # length n + 1
    block_ids: NDArray[np.uint32]
    block_size: int  # tokens an id
    #: Index of the session, in order of first appearance; NO_SESSION without one.
    session: NDArray[np.int32]
    #: Turn within its session, from 0.
    turn: NDArray[np.int32]
    #: Closed loop: the request arrives this long after the request it waits for finished (see
    #: ``sessions.predecessors``), and ``arrival_ns`` is ignored; OPEN_LOOP where the arrival counts.
    think_ns: NDArray[np.int64]
    #: Label of the generator or file (seed 000); outcomes never read it.
    is_conversational_turn: NDArray[np.bool_]
    #: Original id of each dense id (int64 or uint64 array, or a list of strings); empty when the same.
    id_names: NDArray[np.int64] | NDArray[np.uint64] | list[str] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )
    session_names: list[str] = field(default_factory=list)
    #: Members of each row that no column holds, as JSON text without braces; empty unless asked for.
    extra: list[str] = field(default_factory=list)
    #: Request that a closed-loop request waits for, where it is not the previous turn of its session (a
    #: sub-agent waits for its parent, a user's next session for the last one); NO_REQUEST elsewhere. An
    #: empty array says NO_REQUEST throughout.
    after: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    #: Further requests that one waits for beside that first: (request, the one it waits for) each. It arrives
    #: its ``think_ns`` after the last of all has finished.
    also_after: NDArray[np.int32] = field(default_factory=lambda: NO_PAIRS)
    #: Prompt tokens that repeat earlier turns of the session (what a context window left of them);
    #: NOT_GIVEN where the source does not say. An empty array says NOT_GIVEN throughout.
    history_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Who is served first where the queue orders so, the smallest; an empty array says 0 throughout.
    priority: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Tokens of prompt and answer that the ids cover, where an answer's blocks are named too; 0 where they
    #: end with the prompt. An empty array says 0 throughout.
    named_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: The client gives the request up so long after its arrival; NOT_GIVEN where it waits for all of its
    #: answer. An empty array says NOT_GIVEN throughout.
    abort_after_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Oldest tokens that a context window took from each prompt, which ``input_tokens`` no longer counts; an
    #: empty array says 0 throughout.
    dropped_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    #: Who sent each request, as an index of ``tenant_names``; empty where nobody asks.
    tenant: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    tenant_names: list[str] = field(default_factory=list)
    #: Which model each request asks for, as an index of the fleet's models; empty where nobody asks.
    model: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    #: The adapters that requests ask for; empty where nobody asks.
    adapter_names: list[str] = field(default_factory=list)
    #: What becomes of a request's blocks when it is done (``workload.retention``), and how long they live
    #: after that, NOT_GIVEN for ever; empty where nobody asks.
    retention: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    live_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    source: str = ""
    sha256: str = ""
    #: Counted findings of the reader, each one line for people.
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_ns)

    def session_id(self, session: int) -> str | None:
        """Return the name of a session (its index where sessions have no names), None for NO_SESSION."""
        if session == NO_SESSION:
            return None
        return self.session_names[session] if self.session_names else str(session)

    @property
    def distinct_ids(self) -> int:
        """Return how many distinct block ids the trace names."""
        return int(self.block_ids.max()) + 1 if len(self.block_ids) else 0


def view(column: NDArray[Any]) -> memoryview[int]:
    """Return a column whose entries are plain integers, read several times faster than array scalars."""
    return memoryview(column)  # type: ignore[arg-type]  # an array is a buffer; numpy's stubs do not say so
