"""The native core: the contract of every class and function of ``kvcache_sim._core``."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

__version__: str
__release__: bool

# trace: sources and the columns read from them

class TraceProblem(ValueError):
    """A refused trace; ``args`` are line, col (0: none), kind, what, got, expected, hint."""

class JsonlSchema(TypedDict):
    """Member names of one format of JSON rows; an empty name is a member the format does not have."""

    time: str
    time_unit_ns: int
    input: str
    output: str
    ids: str
    session: str
    turn: str
    delay: str
    label: str
    chat: str
    parent: str
    per_token: int

class RawSettings(TypedDict):
    """How to read; ``order`` is error, sort or keep (sort leaves the sorting to the caller)."""

    block_size: int
    skip: bool
    order: str
    keep_unknown: bool

class RawColumns(TypedDict):
    """What a reader hands over: columns as in ``workload.trace.Trace``, and what it found on the way."""

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
    id_names: NDArray[np.uint64] | list[str]
    session_names: list[str]
    extra: list[str]
    problems: list[tuple[int, int, str, str, str, str, str]]
    problem_counts: list[tuple[str, int]]
    findings: list[tuple[str, int, int, str]]
    lines: int
    bytes: int
    unordered: bool

class TraceSource:
    """A trace's bytes, decompressed by content and hashed as stored; ``-`` is standard input."""

    def __new__(cls, path: str) -> TraceSource: ...
    def head(self, n: int) -> bytes:
        """Return the first ``n`` bytes without consuming them."""
    def read(self, n: int) -> bytes:
        """Return the next at most ``n`` bytes, empty at the end; raises ``TraceProblem`` on damaged data."""
    def sha256(self) -> str:
        """Return the SHA-256 of the stored bytes in hex, after reading the rest of the file."""
    def read_jsonl(self, schema: JsonlSchema, settings: RawSettings) -> RawColumns:
        """Return every row's columns; raises ``TraceProblem``. The GIL is released."""
