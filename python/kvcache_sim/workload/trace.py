"""A trace in columns: the internal form of requests."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Value, field

NO_SESSION = -1
OPEN_LOOP = -1
NO_REQUEST = -1
NOT_GIVEN = -1
#: The play of requests that fill caches before any other.
PREPARATION = -1
#: How these requests are sent: at recorded distances, at once, or not.
Primers = Literal["spread", "burst", "none"]
Warmup = Literal["advance", "repeat"]
#: Columns that every trace has, and the meaning of an empty optional column.
COLUMNS = ("arrival_ns", "input_tokens", "output_tokens", "turn", "think_ns", "is_conversational_turn")
WHERE_EMPTY = {"history_tokens": NOT_GIVEN, "priority": 0, "named_tokens": 0, "abort_after_ns": NOT_GIVEN}
NO_PAIRS: NDArray[np.int32] = np.empty((0, 2), np.int32)


class Lanes(Value):
    """Lanes that play trees of requests, and the longest idle times before timers move forward (ns)."""

    count: int = 0
    #: With no request in flight anywhere, and with none of a play in flight; None: no limit.
    idle_cap_ns: int | None = None
    tree_idle_cap_ns: int | None = None


class Trace(Value):
    """Requests as columns, one entry per request, in file order (file order breaks ties of arrival).

    Shapes are of n requests; an empty optional column means its stated default for all. Cost: 4 bytes per id
    reference and about 50 bytes per request.

    Attributes:
        arrival_ns: (n,) int64. Arrival in ns from the start; ignored in closed loop.
        input_tokens: (n,) int64. Prompt tokens.
        output_tokens: (n,) int64. Answer tokens.
        id_offsets: (n + 1,) int64. ``block_ids[id_offsets[i]:id_offsets[i+1]]`` are the block ids of
            request i.
        block_ids: (references,) uint32. Dense ids: the k-th distinct id of the trace in order of first
            appearance is k. Ids are chained: an id identifies its block's content and all before it. The
            last block of a request may be partial.
        block_size: Tokens per id.
        session: (n,) int32. Index of the session, in order of first appearance; NO_SESSION without one.
        turn: (n,) int32. Turn within its session, from 0.
        think_ns: (n,) int64. Closed loop: ns from the finish of the request that is awaited
            (``sessions.predecessors``) to the arrival; OPEN_LOOP where ``arrival_ns`` applies.
        is_conversational_turn: (n,) bool. Label of the generator or file (seed 000) without influence on
            results.
        id_names: (distinct,) int64 or uint64, or a list of texts or of any integers. Original ids; empty if
            the same.
        session_names: One text per session; empty where sessions are named by their index.
        extra: Members of each row without a column, as JSON text without braces; empty unless requested.
        after: (n,) int32 or empty. Request that a closed-loop request waits for, if it is not the previous
            turn of its session (a sub-agent waits for its parent); NO_REQUEST elsewhere and by default.
        also_after: (pairs, 2) int32. Further awaited requests as (request, awaited request): the request
            arrives ``think_ns`` after the last of them has finished.
        history_tokens: (n,) int64 or empty. Prompt tokens that repeat earlier turns of the session, as far
            as a context window kept them; NOT_GIVEN if the source does not state it, and by default.
        priority: (n,) int64 or empty. Priority for queues with that order, smallest first; 0 by default.
        named_tokens: (n,) int64 or empty. Tokens of prompt and answer that the ids cover, if an answer's
            blocks have ids too; 0 if ids end with the prompt, and by default.
        abort_after_ns: (n,) int64 or empty. Time in ns from arrival until the client aborts the request;
            NOT_GIVEN if it waits for the whole answer, and by default.
        dropped_tokens: (n,) int64 or empty. Oldest tokens that a context window removed from the prompt, not
            included in ``input_tokens``; 0 by default.
        tenant: (n,) int32 or empty. Tenant, as an index of ``tenant_names``.
        tenant_names: One text per tenant.
        model: (n,) int32 or empty. Model, as an index of the fleet's models.
        adapter_names: Names of the adapters; empty without adapters.
        retention: (n,) int8 or empty. Retention hint for a request's blocks after it finishes
            (``workload.retention``).
        live_ns: (n,) int64 or empty. Time to live in ns of the retained blocks; NOT_GIVEN without limit.
        parent: (n,) int or empty. Session that started this request's session, as numbered in the file and
            its further passes; NO_SESSION for a session that none started.
        play: (n,) int32 or empty. Play of each request, or PREPARATION, in this order. A request waits for
            none of another play; a request that waits for none arrives ``think_ns`` after its play starts.
        lanes: Lanes for the plays: a play starts when one has ended, the first ones after the preparation.
        id_tokens: Tokens per id of the file, where a block has several; 0: the block size.
        shown_tokens: (n,) int64 or empty. Leading prompt tokens that an earlier request has, by the file's
            ids, where a block has several.
        source: File, or the generator's kind.
        sha256: SHA-256 of the file as text; "" for requests made in memory.
        warnings: Counted notes of the reader, one line each.
    """

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    id_offsets: NDArray[np.int64]
    block_ids: NDArray[np.uint32]
    block_size: int
    session: NDArray[np.int32]
    turn: NDArray[np.int32]
    think_ns: NDArray[np.int64]
    is_conversational_turn: NDArray[np.bool_]
    id_names: NDArray[np.int64] | NDArray[np.uint64] | list[str] | list[int] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )
    session_names: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    after: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    also_after: NDArray[np.int32] = field(default_factory=lambda: NO_PAIRS)
    history_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    priority: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    named_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    abort_after_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    dropped_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    tenant: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    tenant_names: list[str] = field(default_factory=list)
    model: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    adapter_names: list[str] = field(default_factory=list)
    retention: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    live_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    parent: NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int32))
    play: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    lanes: Lanes = Lanes()
    id_tokens: int = 0
    shown_tokens: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    source: str = ""
    sha256: str = ""
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_ns)

    def __getitem__(self, rows: slice) -> Trace:
        """Return some requests as a trace: ``trace[:100]``, ``trace[200:300]``; their times are unchanged.

        Args:
            rows: Slice of requests. What a closed-loop request waits for must be inside.

        Raises:
            UsageError: Not a slice forwards, no request is inside, or one waits for another outside.
        """
        transforms = import_module("kvcache_sim.workload.toolbox.transforms")  # which needs this module
        part: Trace = transforms.part(self, rows)
        return part

    def to_pandas(self) -> Any:
        """Return a pandas data frame of a row a request, its ``block_ids`` a list; needs pandas."""
        import pyarrow as pa

        names = [name for name in (*COLUMNS, "session", *WHERE_EMPTY) if len(getattr(self, name))]
        ids = pa.LargeListArray.from_arrays(self.id_offsets, self.block_ids)
        return pa.table({**{name: getattr(self, name) for name in names}, "block_ids": ids}).to_pandas()

    def __repr__(self) -> str:
        counted = f"{len(self):,} requests, {self.distinct_ids:,} blocks of {self.block_size:,} tokens"
        tokens = f"{self.input_tokens.sum():,} input and {self.output_tokens.sum():,} output tokens"
        return f"<Trace {self.source or 'in memory'}: {counted}, {tokens}>"

    @property
    def preparation(self) -> int:
        """Number of requests that fill caches before any other."""
        return int(np.count_nonzero(self.play == PREPARATION))

    def session_id(self, session: int) -> str | None:
        """Return the name of a session, its index if sessions have no names.

        Args:
            session: Index of the session; None is returned for NO_SESSION.
        """
        if session == NO_SESSION:
            return None
        return self.session_names[session] if self.session_names else str(session)

    @property
    def kv_tokens(self) -> NDArray[np.int64]:
        """Tokens with KV at each request's end: the last generated token never gets any."""
        return self.input_tokens + np.maximum(self.output_tokens, 1) - 1

    @property
    def distinct_ids(self) -> int:
        """Number of distinct block ids of the trace."""
        return int(self.block_ids.max()) + 1 if len(self.block_ids) else 0


def view(column: NDArray[Any]) -> memoryview[int]:
    """Return a column as plain integers, several times faster to read than array scalars."""
    return memoryview(column)  # type: ignore[arg-type]  # an array is a buffer; numpy's stubs lack that
