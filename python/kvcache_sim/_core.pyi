"""The native core: the contract of every class and function of ``kvcache_sim._core``."""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any, Literal, NotRequired, Protocol, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.cache.groups import Brought, Newcomer
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from kvcache_sim.cache.store import EvictionCounts, GpuStore, Occupancy, OrderFields
from kvcache_sim.cache.tier_rules import ChosenLane
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.policies.plugins.hosted import HostedOrder, HostedPriority

__all__ = [
    "MISS_CAUSES",
    "BlockSplit",
    "Channel",
    "Cluster",
    "CurveSample",
    "CurveStack",
    "Demand",
    "Digest",
    "EngineRequests",
    "FetchPlan",
    "Fleet",
    "GatewayRule",
    "GroupStore",
    "HitSteps",
    "HostedCache",
    "IdLists",
    "Keys",
    "KvGroups",
    "OnlineReplays",
    "OperatedMachines",
    "OutputLog",
    "PoolStore",
    "RadixStore",
    "ReplayAnswer",
    "ReplayPolicySettings",
    "ReplayPrompts",
    "Replica",
    "ReuseColumns",
    "Sampled",
    "Sha256",
    "StepTable",
    "Store",
    "TableWriter",
    "TieredPoolStore",
    "Timeline",
    "TokenStore",
    "TraceProblem",
    "TraceRows",
    "TraceSource",
    "__release__",
    "__version__",
    "first_randrange",
    "id_lists",
    "key_lines",
    "last_panic",
    "native_policies",
    "panic_for_test",
    "policy_miss_tokens",
    "projected",
    "replay_lmcache",
    "replay_lmcache_server",
    "replay_sglang",
    "reuse_distances",
    "seeds_of_ids",
    "seeds_of_names",
    "sglang_pass",
    "timed_miss_tokens",
    "toml_values",
    "unbounded_hits",
    "write_token_rows",
]
__version__: str
__release__: bool

def last_panic() -> str:
    """Return the source line and message of the core's last panic; empty if there was none."""

def panic_for_test() -> None:
    """Panic, for the tests of how a panic is reported."""

# trace: sources and the columns read from them

def reuse_distances(ids: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the number of distinct ids between each reference and the last reference to the same id.

    Args:
        ids: Dense ids in the order of reference, shape (n,).

    Returns:
        Distances, shape (n,); -1 at the first reference of an id.
    """

def unbounded_hits(
    rows: tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]],
    left: tuple[NDArray[np.int64], NDArray[np.int64]],
    sizes: tuple[int, int],
) -> NDArray[np.int64]:
    """Return the leading blocks of each row that an unbounded cache has from rows before it.

    Args:
        rows: Dense ids of all rows, the offsets of each row's, and its prompt tokens.
        left: The row whose first ids each row leaves, and the tokens of them that it leaves.
        sizes: Tokens of an id, and of a block, which divides it.

    Returns:
        Blocks, shape (rows,). Cost: one pass over the ids.

    Raises:
        ValueError: For arrays that do not fit together, or such sizes.
    """

def id_lists(ids: NDArray[np.uint64], offsets: NDArray[np.int64]) -> list[str]:
    """Return the ids of each row as JSON, ``[1, 2, 3]``.

    Args:
        ids: Ids of all rows, shape (references,).
        offsets: Row r has ``ids[offsets[r]:offsets[r + 1]]``, shape (rows + 1,).
    """

@final
class BlockSplit:
    """The ids of smaller blocks, numbered by first appearance over all parts of a trace."""

    def __new__(cls, old: int, new: int) -> BlockSplit:
        """Split blocks of ``old`` tokens into blocks of ``new``, which divides it."""
    def rows(
        self, ids: NDArray[np.uint32], offsets: NDArray[np.int64], input_tokens: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the new ids of the next rows, and their offsets; a partial last block has fewer.

        Raises:
            OverflowError: For more than 2³² distinct blocks.
        """

class TraceProblem(ValueError):
    """A refused trace; ``args`` are line, column (0: none), kind, what, got, expected, hint."""

@type_check_only
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
    after: str
    history: str
    priority: str
    named: str
    abort: str
    structure: str
    chat: str
    parent: str
    per_token: int

@type_check_only
class CsvSchema(TypedDict):
    """Column names of one CSV format; ``time_unit_ns`` 0 means dates; an empty name: no column."""

    time: str
    time_unit_ns: int
    input: str
    output: str
    session: str

@type_check_only
class RawSettings(TypedDict):
    """Settings of a reader; ``order`` is error, sort or keep (with sort, the caller sorts)."""

    block_size: int
    skip: bool
    order: str
    keep_unknown: bool
    #: Share and seed of a sample of the ids.
    sample: NotRequired[tuple[float, int] | None]

@type_check_only
class RowColumns(TypedDict):
    """Rows as columns, as in ``workload.trace.Trace``."""

    arrival_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    id_offsets: NDArray[np.int64]
    block_ids: NDArray[np.uint32]
    session: NDArray[np.int32]
    turn: NDArray[np.int32]
    think_ns: NDArray[np.int64]
    is_conversational_turn: NDArray[np.bool_]
    after: NDArray[np.int32]
    history_tokens: NDArray[np.int64]
    priority: NDArray[np.int64]
    named_tokens: NDArray[np.int64]
    abort_after_ns: NDArray[np.int64]
    session_names: list[str]
    extra: list[str]

@type_check_only
class RawColumns(RowColumns):
    """All rows of a file and the reader's findings."""

    #: Tokens per block of the file itself, or 0.
    block_size: int
    #: Pairs (request, request that it waits for), flat, in addition to ``after``; set by Python readers only.
    also_after: NotRequired[NDArray[np.int32]]
    new_input_only: bool
    id_names: NDArray[np.uint64] | list[str] | list[int]
    problems: list[tuple[int, int, str, str, str, str, str]]
    problem_counts: list[tuple[str, int]]
    findings: list[tuple[str, int, int, str]]
    lines: int
    bytes: int
    unordered: bool

@type_check_only
class RowBatch(TypedDict):
    """Rows as columns: of numbers (``readers.parquet.NUMBERS``; empty: no row has one) and the others."""

    numbers: list[NDArray[np.int64]]
    ids: IdLists
    sessions: list[str | None]
    extra: list[str | None]
    #: Bytes of the file up to the end of these rows.
    bytes: int

@final
class IdLists:
    """The block ids of some rows, read once."""

    @staticmethod
    def of_values(offsets: NDArray[np.int64], values: NDArray[np.uint64]) -> IdLists:
        """Return rows with ``values[offsets[r]:offsets[r + 1]]``."""
    @staticmethod
    def of_chunk(chunk: bytes, is_snappy: bool, rows: int) -> IdLists | None:
        """Return the rows of a Parquet column chunk of optional lists of required integers.

        None if it is not DELTA_BINARY_PACKED in pages of the first version, under Snappy or uncompressed.
        """

@final
class TraceRows:
    """A reader of JSON rows that returns a part of the file at a time; it takes ownership of the source."""

    def __new__(cls, source: TraceSource, schema: JsonlSchema, settings: RawSettings) -> TraceRows:
        """Take ownership of ``source``, which refuses further calls."""
    @staticmethod
    def of_batches(
        source: TraceSource, schema: JsonlSchema, settings: RawSettings, batches: Iterator[RowBatch]
    ) -> TraceRows:
        """Return a reader of rows that come as columns; ``source`` is kept for its digest only."""
    @staticmethod
    def of_weka(source: TraceSource, settings: RawSettings) -> TraceRows:
        """Return a reader of WEKA sessions; ``block_size`` 0 takes the file's own."""
    def watch(self, watch: Callable[[int, int, int], None]) -> None:
        """Call ``watch`` at intervals with the bytes, references and, in a replay, distinct ids so far.

        An error that it raises ends the reading.
        """
    def read(self, most: int) -> bool:
        """Read until ``most`` rows are buffered; return True if the source may have more rows.

        Raises:
            TraceProblem: For a row that the settings do not allow.
        """
    def buffer(self, references: int) -> bool:
        """Read until so many block ids are buffered; return True if the source may have more rows.

        Raises:
            TraceProblem: For a row that the settings do not allow.
        """
    @property
    def needs_whole(self) -> str | None:
        """The first reason why the rows so far cannot be replayed one by one."""
    @property
    def alone(self) -> bool:
        """True if no row so far has a session, a pause or a predecessor, and all rows have block ids."""
    @property
    def block_size(self) -> int:
        """Tokens per id that the file states so far, else 0."""
    @property
    def new_input_only(self) -> bool:
        """True if rows hold the new input of their turn only."""
    def names(self, ids: NDArray[np.uint32]) -> NDArray[np.uint64] | list[str] | list[int]:
        """Return the trace's own names of block ids."""
    def session_names(self, first: int) -> list[str]:
        """Return the names of sessions from number ``first`` on."""
    def take(self) -> RowColumns:
        """Return the buffered rows, without names of sessions; ids keep their numbers in later rows."""
    def keep_ids(self, numbers: NDArray[np.uint32]) -> None:
        """Forget all block ids except ``numbers``; a forgotten id that recurs gets a new number."""
    def finish(self) -> tuple[RawColumns, TraceSource]:
        """Return the buffered rows with all findings, and the source for its digest."""

@final
class TraceSource:
    """A trace's bytes, decompressed by content and hashed as stored; the path ``-`` is standard input."""

    def __new__(cls, path: str) -> TraceSource:
        """Open ``path``; raises ``TraceProblem`` if it cannot be opened."""
    def head(self, n: int) -> bytes:
        """Return the first ``n`` bytes without consuming them."""
    def read(self, n: int) -> bytes:
        """Return at most ``n`` next bytes, empty at the end; raises ``TraceProblem`` for damaged data."""
    def without_digest(self) -> None:
        """Compute no SHA-256: ``sha256`` returns an empty text."""
    def sha256(self) -> str:
        """Return the SHA-256 of the stored bytes in hex, after reading the rest of the file."""
    def read_jsonl(self, schema: JsonlSchema, settings: RawSettings) -> RawColumns:
        """Read all rows of JSON; raises ``TraceProblem``. The GIL is released."""
    def read_csv(self, schema: CsvSchema, settings: RawSettings) -> RawColumns:
        """Read all rows of CSV, which have no block ids; raises ``TraceProblem``. The GIL is released."""
    def read_weka(self, settings: RawSettings) -> RawColumns:
        """Read the rows of WEKA sessions. The GIL is released.

        Args:
            settings: Settings of the reader; ``block_size`` 0 takes the file's own.

        Raises:
            TraceProblem: For a row that the settings do not allow.
        """

# replay: cache decisions without time

@final
class ReplayAnswer:
    """The result of one replay."""

    def __new__(
        cls,
        hits: NDArray[np.uint32],
        evictions: int,
        expired: int,
        resident: int,
        missed: NDArray[np.int64],
    ) -> ReplayAnswer: ...
    @property
    def hits(self) -> NDArray[np.uint32]:
        """Blocks that each request found, shape (requests,)."""
    @property
    def evictions(self) -> int:
        """Blocks evicted for capacity or because they had expired."""
    @property
    def expired(self) -> int:
        """Evicted blocks that had expired."""
    @property
    def resident(self) -> int:
        """Blocks resident at the end."""
    @property
    def missed(self) -> NDArray[np.int64]:
        """Known blocks that were missed, as flat triples; empty without ``known``.

        A triple is the request, the request whose demand evicted the blocks (-1: they were never admitted),
        and the number of blocks.
        """

@final
class ReplayPrompts:
    """The prompts of a trace cut into blocks, copied once; every replay starts from an empty tier.

    ``touch_from`` is tail or root. ``capacity`` is in blocks, at least 1. ``known`` has shape (requests,):
    the leading blocks of each request whose misses are reported. All methods release the GIL.

    Args:
        ids: Block ids of all requests, flat.
        offsets: Start of each request's ids in ``ids``, shape (requests + 1,).
        blocks_per_id: Blocks that one id names.
        blocks: Blocks of each prompt that ids name, shape (requests,).
        private_blocks: Blocks that no other request shares, shape (requests,).
        arrival_ns: Arrival times in ns, shape (requests,).

    Raises:
        ValueError: For an unknown name, a capacity of 0, more blocks than 32 bits can number, or a request
            that names an id twice.
    """

    def __new__(
        cls,
        ids: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        blocks_per_id: int,
        blocks: NDArray[np.uint32],
        private_blocks: NDArray[np.uint32],
        arrival_ns: NDArray[np.int64],
    ) -> ReplayPrompts: ...
    def recency(
        self, capacity: int, touch_from: str, known: NDArray[np.uint32] | None = None
    ) -> ReplayAnswer:
        """Replay least recently used: leaf first (tail), or a plain recency list behind a prefix look-up."""
    def leaf_first(
        self,
        policy: str,
        capacity: int,
        settings: ReplayPolicySettings,
        window: int = 0,
        known: NDArray[np.uint32] | None = None,
    ) -> ReplayAnswer:
        """Replay any policy prefix-aware; ``window`` requests in flight hold their blocks."""
    def plain(
        self,
        policy: str,
        capacity: int,
        discipline: str,
        settings: ReplayPolicySettings,
        window: int = 0,
    ) -> ReplayAnswer:
        """Replay any policy block by block; ``discipline`` is tail or root (a flat cache), or queue."""
    def belady(self, capacity: int) -> ReplayAnswer:
        """Replay Belady's clairvoyant upper bound: prefix-closed, with bypass."""
    def belady_flat(self, capacity: int, touch_from: str) -> ReplayAnswer:
        """Replay Belady's clairvoyant upper bound for a flat cache that inserts every miss."""
    def reuses(self, limits: NDArray[np.uint32], touch_from: str) -> ReuseColumns:
        """Return every reuse with the capacities at which least recently used hits it, in one pass.

        Args:
            limits: Leading blocks of each request that may hit, shape (requests,).
            touch_from: tail or root.
        """

@final
class HitSteps:
    """A step function of capacity, exact at every capacity; 4 bytes a capacity at which its slope changes."""

    def __new__(cls) -> HitSteps:
        """Return a function that is 0 everywhere."""
    def add(self, start: NDArray[np.int64], count: NDArray[np.int64], weight: NDArray[np.int64]) -> None:
        """Add ramps: each of ``count`` capacities from ``start`` on gains ``weight``."""
    def at(self, capacity: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum at each capacity."""
    @property
    def corners(self) -> NDArray[np.int64]:
        """The capacities between which the sum is a straight line, ascending from 0."""
    @property
    def last(self) -> int:
        """The smallest capacity with the largest sum."""
    @property
    def top(self) -> int:
        """The sum at ``last`` and beyond."""
    def reaching(self, amount: float) -> int:
        """Return the smallest capacity at which the sum is at least an amount."""
    @property
    def knee(self) -> int:
        """The corner farthest above the straight line from nothing to the top (Kneedle)."""

@final
class CurveStack:
    """The curve of least recently used, released tail first, from rows as they are read.

    Memory is by distinct blocks.

    Args:
        block_size: Tokens a block.
        keep_partial: True if a partial last id is a block.
        output_less: Output tokens whose KV a request does not leave; None: it leaves none of its output.
    """

    def __new__(cls, block_size: int, keep_partial: bool, output_less: int | None) -> CurveStack: ...
    def feed(self, rows: TraceRows) -> bool:
        """Take every row; return False if one cannot be replayed alone.

        Raises:
            TraceProblem: For a row that the settings of the rows do not allow.
        """
    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Requests, prompt tokens, references to blocks, and of these those to a block seen before."""
    def take(self) -> tuple[HitSteps, HitSteps]:
        """Return hits in blocks, and the tokens they count less than whole blocks; both are then empty."""

@final
class OnlineReplays:
    """Tiers with policies that need no future, fed with the same rows as they are read.

    Memory is by resident blocks, ghosts and distinct blocks, never by references.

    Args:
        block_size: Tokens a block.
        blocks_per_id: Blocks that one id names.
        keep_partial: True if a partial last id is a block.
        output_less: Output tokens whose KV a request does not leave; None: it leaves none of its output.
        all_count: True if every named block may count as a hit, as in a cache without prefixes.
    """

    def __new__(
        cls,
        block_size: int,
        blocks_per_id: int,
        keep_partial: bool,
        output_less: int | None,
        all_count: bool,
    ) -> OnlineReplays: ...
    def add_prefix(
        self, policy: str, capacity: int, touch_from: str, settings: ReplayPolicySettings, window: int
    ) -> None:
        """Add a prefix-aware tier; ``touch_from`` (tail, root) is for lru without overlap.

        Raises:
            ValueError: For an unknown name or a capacity of 0.
        """
    def add_plain(
        self, policy: str, capacity: int, discipline: str, settings: ReplayPolicySettings, window: int
    ) -> None:
        """Add a plain cache of blocks: tail or root is touched first, or queue.

        Raises:
            ValueError: For an unknown name or a capacity of 0.
        """
    def feed(self, rows: TraceRows) -> bool:
        """Take every row; return False if one cannot be replayed alone.

        Raises:
            TraceProblem: For a row that the settings of the rows do not allow.
            ValueError: For more blocks than 32 bits can number.
        """
    @property
    def totals(self) -> tuple[int, int, int]:
        """Requests, prompt tokens and references to blocks."""
    @property
    def answers(self) -> list[tuple[int, int, int, int, int, int, str]]:
        """Of each tier: hits, hits that count, their tokens, evictions, expired and resident blocks, digest.

        The digest is the SHA-256 of the hit tokens of each request as decimals joined by newlines.
        """

@final
class CurveSample:
    """The curve of least recently used from a sample of the ids, released tail first.

    Args:
        block_size: Tokens a block.
        per_id: Blocks of an id.
        keep_partial: True if a partial last id is a block.
        output_less: Output tokens whose KV a request does not leave; None: it leaves none of its output.
        sample: Share of the ids, and seed.
    """

    def __new__(
        cls,
        block_size: int,
        per_id: int,
        keep_partial: bool,
        output_less: int | None,
        sample: tuple[float, int],
    ) -> CurveSample: ...
    def feed(self, rows: TraceRows) -> bool:
        """Take every row of a reader with the same sample; return False if one cannot be replayed alone.

        Raises:
            TraceProblem: For a row that the settings of the rows do not allow.
        """
    def feed_trace(
        self,
        blocks: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]],
        offsets: NDArray[np.int64],
        ids: NDArray[np.uint32],
        names: NDArray[np.uint64],
    ) -> None:
        """Take the rows of a trace in memory.

        Args:
            blocks: Of each row, the blocks that ids name, its own alone, and those that may hit.
            offsets: Row i has the ids from ``offsets[i]`` to ``offsets[i + 1]``.
            ids: Dense ids of all rows.
            names: Ids as the file has them, by their dense number; empty if the same.
        """
    @staticmethod
    def values_of(names: list[str]) -> NDArray[np.uint64]:
        """Return the values by which texts, and integers beyond 64 bits or below 0, are sampled."""
    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Requests, prompt tokens, references to blocks, and of these those that may hit."""
    @property
    def ids(self) -> tuple[int, int]:
        """Sampled ids, and of these the ids that are counted exactly."""
    def at(self, capacities: NDArray[np.int64]) -> list[list[int]]:
        """Return hits at ascending capacities: of the whole sample, then of its disjoint parts."""

@final
class ReuseColumns:
    """The reuses of a trace: entry i is a run of blocks of one request that hit together."""

    @property
    def request(self) -> NDArray[np.uint32]:
        """The request that reuses the blocks."""
    @property
    def capacity(self) -> NDArray[np.uint64]:
        """The smallest capacity, in blocks, at which the first block hits."""
    @property
    def blocks(self) -> NDArray[np.uint32]:
        """Number of blocks in the run."""
    @property
    def step(self) -> NDArray[np.uint32]:
        """Capacity that each further block needs in addition to the block before it."""
    @property
    def before(self) -> NDArray[np.uint32]:
        """The request that last touched the blocks."""

def native_policies() -> list[tuple[str, str]]:
    """Return the name and the kind (``ranked`` or ``queue``) of every eviction policy of the core."""

@final
class ReplayPolicySettings:
    """Settings of the policies that need some.

    Args:
        ttl_ns: Time to live of ``ttl``, in ns.
        attention_blocks: Attention length of ``pgdsf``, in blocks.
        ranges: (first block, past the last, priority, duration in ns or None) of ``priority``.
        names: Name of each block in the sketch of ``wtinylfu``; None: the block's number, counted from 1.

    Raises:
        ValueError: For a number out of its range.
    """

    def __new__(
        cls,
        ttl_ns: int,
        attention_blocks: float,
        ranges: list[tuple[int, int, int, int | None]],
        names: NDArray[np.uint64] | None = None,
    ) -> ReplayPolicySettings: ...

# tokens: seeds of hash ids, their first draws, and rows of windows

def seeds_of_ids(prefix: str, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the head of SHA-256("{prefix}{id}") of each id."""

def seeds_of_names(prefix: str, names: list[str]) -> NDArray[np.uint64]:
    """Return the head of SHA-256(prefix + name) of each name."""

def first_randrange(seeds: NDArray[np.uint64], stop: int) -> NDArray[np.uint64]:
    """Return ``random.Random(seed).randrange(stop)`` for each seed; raises ValueError if ``stop`` is 0."""

@type_check_only
class TokenRows(Protocol):
    """Rows of tokens to write; dense ids index ``starts``, rows index ``tail_starts``."""

    @property
    def lengths(self) -> NDArray[np.int64]: ...
    @property
    def id_offsets(self) -> NDArray[np.int64]: ...
    @property
    def block_ids(self) -> NDArray[np.uint32]: ...
    @property
    def starts(self) -> NDArray[np.uint32]: ...
    @property
    def tail_starts(self) -> NDArray[np.uint32]: ...
    @property
    def block_size(self) -> int: ...
    @property
    def separator(self) -> int | None: ...

def write_token_rows(
    rows: TokenRows,
    corpus: int | NDArray[np.uint32],
    first_row: int,
    last_row: int,
    out: NDArray[np.uint32],
) -> None:
    """Write the rows from ``first_row`` up to, excluding, ``last_row`` one after another.

    Args:
        rows: The rows' lengths, block ids and start positions in the corpus.
        corpus: Token ids; a number N stands for the ids 0 … N-1.
        first_row: First row to write.
        last_row: Row after the last one to write.
        out: Receives the tokens; its length is the sum of the rows' lengths.

    Raises:
        ValueError: For columns that do not fit each other.
    """

# store: the block store of one machine; see cache/store.py and cache/tree_store.py for what each call means

@final
class Keys:
    """Block keys of all requests, shared by the caches of all machines.

    Block b of request r takes its key from the request's ids if ``b < full_blocks[r]``. A later block takes
    its key from the ids of ``continuation[r]`` (2^32 - 1: none) if these name it. Any other block has a key
    of its own.

    Raises:
        StoreError: For arrays whose shapes do not fit each other.
    """

    def __new__(
        cls,
        id_offsets: NDArray[np.int64],
        block_ids: NDArray[np.uint32],
        blocks_per_id: int,
        full_blocks: NDArray[np.uint32],
        continuation: NDArray[np.uint32],
    ) -> Keys: ...
    def kept(self, stores: Sequence[Store], requests: Sequence[int]) -> Keys:
        """Return the keys of ``requests`` and of the blocks that ``stores`` still name."""
    def kept_ids(self) -> NDArray[np.uint32]:
        """Return the distinct ids, in ascending order."""
    def appended(
        self, id_offsets: NDArray[np.int64], block_ids: NDArray[np.uint32], full_blocks: NDArray[np.uint32]
    ) -> Keys:
        """Return these keys with those of further requests; raises StoreError as the class does."""
    def grow(
        self,
        stores: Sequence[Store | PoolStore],
        columns: tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]],
        ids: int,
    ) -> None:
        """Append requests. Cost: linear in what is added.

        Args:
            stores: All stores that share these keys.
            columns: Offsets, ids and full blocks of the new requests.
            ids: Upper bound (excluded) of the ids.

        Raises:
            StoreError: For arrays whose shapes do not fit each other.
        """
    def key(self, request: int, block: int) -> int:
        """Return the key of a block; a key with bit 63 set belongs to one request only."""

@type_check_only
class MachineStore(Protocol):
    """Calls of every machine's store; blocks are named by (request, block). Contract: ``cache/store.py``.

    All calls raise StoreError for numbers that do not exist, and the exception of a plug-in that failed.
    """

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return the blocks found among the first ``limit``, and the number of these ready on the GPU."""
    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks on the GPU; return the lease."""
    def abandon(self, lease: int) -> None:
        """Undo an acquisition without any effect on recency or counts."""
    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Reserve private GPU blocks for a lease, evicting the shortfall.

        Args:
            lease: From ``acquire``.
            blocks: Number of blocks.
            now_ns: Simulated time in ns.

        Returns:
            The moves that must finish before the blocks are free, or None if refused.
        """
    def reserve_many(self, wanted: Sequence[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Reserve for several (lease, blocks), all or nothing; returns as ``reserve``."""
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Share the lease's computed blocks up to block ``to``.

        Args:
            lease: From ``acquire``.
            to: Block after the last one to share.
            ready: Times in ns at which the first layer and all layers were computed; None: the latest time
                passed to the store. Only a tree store keeps it.
        """
    def depth(self, lease: int) -> int:
        """Return the number of blocks that the lease holds through the cache."""
    def release(self, lease: int, now_ns: int) -> None:
        """End a lease and touch its path."""
    def occupancy(self, tier: int) -> Occupancy:
        """Return the usage of a tier's blocks."""
    def eviction_counts(self, tier: int) -> EvictionCounts:
        """Return the number of blocks that left a tier so far, by reason."""
    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None:
        """Add a record to the machine's digest."""
    def log_evictions(self) -> None:
        """Start logging evictions."""
    def not_loaded(self) -> list[tuple[int, int]]:
        """Return (request, blocks found) of first admissions that computed some of the found blocks."""
    def take_evictions(self) -> list[tuple[int, int, int]]:
        """Return (time in ns, tier, blocks) of the evictions since the last call."""
    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant."""
    @property
    def digest(self) -> int:
        """The rolling hash so far."""
    @property
    def merged_blocks(self) -> int:
        """Blocks that were computed twice and merged."""

@type_check_only
class LowerTiers(Protocol):
    """Further calls of a store with tiers below the GPU."""

    def take_orders(self) -> list[OrderFields]:
        """Return the transmissions decided since the last call.

        An order is (move, from tier, to tier, blocks, moves that must finish first).
        """
    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Set the times in ns at which a move's copies will be ready."""
    def finish_move(self, move: int) -> None:
        """Make a move's blocks ready and release the capacity that it frees."""
    def duplicates(self, tier: int) -> int:
        """Return the number of a tier's blocks that are on a faster tier too."""
    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Report the end of a step of these leases, to a store that copies computed blocks down."""

@type_check_only
class LoadedStore(Protocol):
    """Further calls of a store whose requests load blocks from lower tiers, part after part."""

    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts: (fastest tier, first block, past the last, move writing it)."""
    def protect(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier until ``unprotect``; return the hold."""
    def unprotect(self, tier: int, hold: int) -> None:
        """Release a hold of ``protect``."""
    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Read the lease's next blocks up to ``to`` into reserved GPU blocks.

        Args:
            lease: From ``acquire``.
            to: Block after the last one to load.
            after: Moves that must finish first.

        Returns:
            The move.
        """
    def join(self, lease: int, to: int) -> None:
        """Hold blocks up to ``to`` that another request is loading."""

@final
class Store(MachineStore, LowerTiers, LoadedStore):
    """The native ``MarkingStore``: a radix trie of block runs; see ``cache/tree_store.py``."""

    def __new__(
        cls,
        keys: Keys,
        capacities_blocks: list[int | None],
        write_back: list[bool],
        orders: Sequence[
            tuple[str, ReplayPolicySettings, int] | tuple[str, HostedPriority] | HostedOrder | None
        ]
        | None = None,
        touch: Literal["release", "admission"] = "release",
        eviction_batch_blocks: int = 1,
        shared: tuple[PrefixViewSettings, int] | None = None,
        overflow: Literal["wait", "wait-for-writes", "drop"] = "wait",
        write_once: bool = False,
    ) -> Store:
        """Return an empty store.

        Args:
            keys: Block keys of all requests.
            capacities_blocks: Capacity of each tier in blocks, fast to slow; None: unbounded.
            write_back: By tier, True if evicted blocks are written one tier down.
            orders: Eviction order of each tier: None is recency, else a policy (name, settings, blocks of the
                tier) or a plug-in.
            touch: Event that makes blocks recent under recency.
            eviction_batch_blocks: Blocks that an eviction removes at least.
            shared: Rules for sharing prefixes between requests, and tokens of a block; None: all are shared.
            overflow: Victims that the tier below cannot store now wait for space there, or are dropped;
                ``wait-for-writes`` waits for no load, since loads wait for steps themselves (read buffers).
            write_once: True if a victim that any lower tier has is not written to the next one again.
        """
    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return the found run in parts: (past the last block, lease owners, access on the fastest tier)."""
    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None:
        """Copy a part (first block, past the last) one tier up, evicting there first.

        Args:
            request: Request that names the blocks.
            part: First block and block after the last one.
            to_tier: Target tier.
            ready: The move that still writes the source; None: the source is ready.
            now_ns: Simulated time in ns.

        Returns:
            The move, or None without capacity.
        """
    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None:
        """Copy blocks from the GPU to the CPU; return the move, None if there is nothing to send."""
    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None:
        """Copy the lease's blocks that ``uses`` requests have used one tier down; return the move."""
    def write_on(self, move: int, now_ns: int) -> int | None:
        """Copy the blocks of a move one tier further down; call before its ``finish_move``."""
    def touch(self, request: int, end: int) -> None:
        """Make the first ``end`` blocks the most recently used."""
    def discard(self, request: int, start: int, end: int) -> None:
        """Discard a path from ``end`` up to ``start``.

        Stops at a block that is held, in flight or has children.
        """
    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the run found below the GPU from block ``start`` on, in parts as ``match_prefix``."""
    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        """Return the found run in parts: (past the last block, for each tier the move writing it).

        ``NO_MOVE`` is a ready copy, ``NO_COPY`` none. Changes nothing.
        """
    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """Return the found run in parts: (past the last block, copies from fast to slow).

        A copy is (tier, move writing it, first layer ready, whole ready, last access), times in ns.
        """
    def moved_paths(self, move: int) -> list[tuple[int, int]]:
        """Return the paths that a move writes, as (request, past the last block), the longest first."""
    def take_keys(self, keys: Keys) -> None:
        """Replace the keys; ``keys`` cover all blocks that this store still names."""
    def claim(self, tier: int, blocks: int, now_ns: int) -> tuple[int, list[int]] | None:
        """Take capacity on a tier, evicting the shortfall.

        Returns:
            The claim and the moves that must finish first, or None if refused.
        """
    def release_claim(self, claim: int) -> None:
        """Release claimed capacity in which no block was placed."""
    def fill_claim(self, claim: int, request: int, part: tuple[int, int], source: int | None) -> bool:
        """Mark blocks as being written into a claim of their size.

        Args:
            claim: From ``claim``.
            request: Request that names the blocks.
            part: First block and block after the last one.
            source: Tier that the blocks are read from; None: none.

        Returns:
            False, and no change, if a block is there already, is not on the source, or follows a block that
            is not found.
        """
    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        """Mark a part absent from a tier, last block first; return the number removed.

        Stops at a held block.
        """
    def lend(self, request: int, end: int, tier: int) -> int:
        """Hold the first ``end`` blocks on a tier for another machine, until the move is finished."""
    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None:
        """Store a part from another machine on the CPU; return the move, None if refused."""
    def expire(self, now_ns: int) -> None:
        """Discard the blocks whose time to live (``ttl``) has passed."""
    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None:
        """Drop the lower copies of a part after a load over an exclusive edge."""
    @property
    def runs(self) -> int:
        """Live runs in the trie."""
    def log_changes(self) -> None:
        """Start logging the blocks that enter and leave each tier."""
    def take_changes(self) -> list[tuple[int, bool, int]]:
        """Return (tier, True if the block entered, key) of the changes since the last call, in order."""
    def clear(self) -> bool:
        """Release every block; returns False, and changes nothing, while some are held or moved."""

@final
class PoolStore(MachineStore):
    """vLLM's block pool as the store of a machine with a GPU tier only; calls as in ``Store``.

    A request has one lease at a time, which its first reservation creates if needed.
    """

    def __new__(cls, keys: Keys, capacity_blocks: int) -> PoolStore:
        """Return an empty pool of ``capacity_blocks``."""
    def free_queue(self) -> list[int | None]:
        """Return the keys of the free blocks in the order of allocation; None for a block without a key."""

    def log_changes(self) -> None:
        """Start logging the blocks that enter and leave each tier."""
    def take_changes(self) -> list[tuple[int, bool, int]]:
        """Return (tier, True if the block entered, key) of the changes since the last call, in order."""
    def clear(self) -> bool:
        """Release every block; returns False, and changes nothing, while some are held or moved."""

@final
class TokenStore(MachineStore):
    """A machine's cache as a count of unique tokens; the blocks of its calls are tokens."""

    def __new__(
        cls,
        keys: Keys,
        prompts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
        block_size_tokens: int,
        capacity_tokens: int | None,
        session_view: SessionViewSettings,
        prefix_view: PrefixViewSettings,
    ) -> TokenStore:
        """Return an empty store.

        Args:
            keys: Block keys of all requests.
            prompts: Three arrays of shape (requests,): session number (negative: none), prompt tokens, and
                history tokens left by the context window (negative: unknown).
            block_size_tokens: Tokens per block of the trace, the unit of shared prefixes.
            capacity_tokens: Capacity in tokens; None: unbounded.
            session_view: Bounds on the known sessions.
            prefix_view: Conditions for sharing a prefix, and the tokens of all prefixes together.
        """

    def find(self, request: int, limit: int, now_ns: int) -> int:
        """Return the number of tokens found, after dropping the sessions whose time to live has passed."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the last token, users, access) of each shared prefix of a prompt."""

    def session_tokens(self, session: int, now_ns: int) -> int | None:
        """Return the tokens that a session's last completed turn left; None if the session is unknown."""

    def observe(self, request: int, prompt_tokens: int) -> None:
        """Count the prefixes of a prompt that is admitted for the first time."""

    def complete_turn(self, request: int, session: int, tokens: int, now_ns: int) -> None:
        """Store the tokens of a completed turn for the session's next turn."""

    @property
    def used(self) -> int:
        """Unique tokens in memory."""

@final
class TieredPoolStore(MachineStore, LowerTiers, LoadedStore):
    """vLLM's block pool above an engine's own tiers, as the store of a machine; calls as in ``Store``.

    A request has one lease at a time, which its first reservation creates if needed. ``prompts`` are the
    prompt tokens of each request, and the tokens per block.
    """

    def free_queue(self) -> list[int | None]:
        """Return the keys of the free blocks in the order of allocation; None for a block without a key."""

    @staticmethod
    def with_offload(
        keys: Keys,
        capacity_blocks: int,
        cpu_blocks: int,
        chunk_blocks: int,
        policy: str,
        prompts: tuple[list[int], int],
    ) -> TieredPoolStore:
        """Return an empty store above vLLM's CPU offloading; ``policy`` is ``lru`` or ``arc``."""

    @staticmethod
    def with_lmcache(
        keys: Keys,
        capacity_blocks: int,
        blocks: tuple[int, int],
        chunk_blocks: int,
        policy: str,
        prompts: tuple[list[int], int],
    ) -> TieredPoolStore:
        """Return an empty store above LMCache's tiers.

        Args:
            keys: Block keys of all requests.
            capacity_blocks: GPU blocks.
            blocks: Blocks of the CPU tier and of the disk tier; 0 disk blocks: no disk tier.
            chunk_blocks: Blocks of a chunk, the unit in which the tiers store.
            policy: The replay's name of the rules and the eviction policy, ``lmcache:lru``.
            prompts: Prompt tokens of each request, and tokens per block.
        """

@final
class GroupStore(MachineStore, LowerTiers):
    """A pool of several KV cache groups as the store of a machine, alone or above one tier.

    Calls as in ``cache.store.GroupStore``. ``limits`` are the tokens of a step, the retention interval in
    tokens and the longest sequence. ``rules`` selects the rules of reuse, ``vllm`` or ``tree``.
    """

    def __new__(
        cls, groups: KvGroups, limits: tuple[int, int | None, int], capacity_blocks: int, rules: str
    ) -> GroupStore:
        """Return an empty pool of ``capacity_blocks``."""
    @staticmethod
    def with_tier(
        groups: KvGroups,
        limits: tuple[int, int | None, int],
        capacity_blocks: int,
        rules: str,
        tier: tuple[int, int, str, str],
        prompt_tokens: list[int],
    ) -> GroupStore:
        """Return a store above an empty tier.

        Args:
            groups: The cache groups.
            limits: As for the class.
            capacity_blocks: GPU blocks.
            rules: As for the class.
            tier: Blocks, those of a chunk, eviction policy, and writes of the tier: ``engine`` (vLLM's
                connector offers blocks), ``back`` or ``through`` (the tree's write policies).
            prompt_tokens: Prompt tokens of each request.
        """

    @staticmethod
    def with_simple_tier(
        groups: KvGroups,
        limits: tuple[int, int | None, int],
        capacity_blocks: int,
        cpu_blocks: int,
        step_tokens: int | None,
    ) -> GroupStore:
        """Return a store above the empty tier of vLLM's second offloader.

        Args:
            groups: The cache groups.
            limits: As for the class.
            capacity_blocks: GPU blocks.
            cpu_blocks: Blocks of the tier.
            step_tokens: Tokens of the steps that lazy stores keep free blocks for; None: computed blocks are
                stored.
        """

    def brought(self, lease: int) -> Brought:
        """Return the blocks found in the pool, the moves that free blocks, and the moves that load KV."""
    def blocks_of_move(self, move: int) -> list[int]:
        """Return the number of blocks of each cache group that a move copies."""
    def admit(self, asked: Newcomer, now_ns: int) -> tuple[int | None, int, int]:
        """Admit a request.

        Returns:
            The lease, hit blocks and tokens with capacity. A refusal has lease None and as second entry its
            reason: no blocks (0), no tokens (1), or the state is being computed in this step (2).
        """
    def grow(self, lease: int, tokens: tuple[int, int], now_ns: int) -> bool:
        """Extend a lease by ``tokens`` = (tokens computed, tokens to have capacity for); False if refused."""
    def chunk(self, lease: int, computed: int, target: int, tokens: int) -> int:
        """Return the tokens of a prompt's next chunk, which ends where a state may be reused.

        Args:
            lease: From ``admit``.
            computed: Tokens computed.
            target: Tokens to compute.
            tokens: Most tokens of the chunk.
        """
    def most_blocks(self, tokens: int, steps_in_flight: int) -> int:
        """Return the blocks that a sequence of ``tokens`` needs at most with so many steps in flight."""
    def by_group(self) -> list[tuple[int, int, int, int]]:
        """Return by group the blocks and the tokens that were lost.

        A group: blocks that got a key, blocks that lost it, hit tokens lost since nothing was kept, hit
        tokens lost by eviction.
        """
    def junctions(self) -> list[tuple[int, int, bool]]:
        """Return the hits cut where a group kept nothing: (request, tokens, True if a state was missing)."""
    def free_queue(self) -> list[tuple[int, int] | None]:
        """Return (group, key) of the free blocks in the order of allocation; None: no key."""

@final
class RadixStore(MachineStore, LowerTiers, LoadedStore):
    """SGLang's tree as a machine's store, with HiCache's host tier or GPU only; see ``cache/store.py``.

    Args:
        keys: Block keys of all requests.
        rules: Eviction strategy and write policy by SGLang's names; write policy "": the classic tree, which
            has no host tier.
        page: Tokens per page.
        pages: Pages of the device and of the host.
        lengths: Prompt and total tokens of each request.
        storage: Pages of the storage below (None: unbounded), the smallest prefetch in pages, and the most
            tokens that running prefetches may request together; None: no storage.

    Raises:
        StoreError: For unknown names, a page of 0 tokens, lengths of another number of requests, pages loaded
            or joined without capacity, or a prefetch that is not running.
    """

    def __new__(
        cls,
        keys: Keys,
        rules: tuple[str, str],
        page: int,
        pages: tuple[int, int],
        lengths: tuple[Sequence[int], Sequence[int]],
        storage: tuple[int | None, int, int] | None = None,
    ) -> RadixStore: ...
    def start_prefetch(self, request: int, limit: int, now_ns: int) -> int:
        """Prefetch from storage the pages after the known part of a request's first ``limit`` pages.

        Returns:
            The number of pages requested; 0 if the prefetch is too small, finds nothing, or must wait for
            running prefetches.
        """
    def is_prefetching(self, request: int) -> bool:
        """Return True if a prefetch of the request is running."""
    def stop_prefetch(self, request: int) -> None:
        """Stop the request's prefetch; the pages that arrived stay."""
    @property
    def prefetched_blocks(self) -> int:
        """Blocks that prefetches have brought to the host so far."""

# step times

@final
class StepTable:
    """The integer form of a step-time model.

    Args:
        bases_ns: Base times in ns of steps with a chunk, of steps whose chunk has a past (may be empty), and
            of decode steps.
        coefficients_fs: In fs: pair half, kv decode, kv mixed, sequence, past, spread decode, spread mixed,
            scan, idle, ``beside``.
        least_tokens: Least count of a sequence's KV tokens, and of a chunk's tokens against its past.
        longest_fs: fs per token of the longest sequence, by number of decode sequences; may be empty.
        unsplit: Least number of decode sequences whose KV is not split (0: none), fs per token of the
            longest, and fs per token of the mean that others hide of it.
        residuals: Residuals of three grids (counts, tokens, ns of each pair): by decode sequences and their
            mean KV, the same with a chunk in the step, and by a chunk's tokens and its past; may be empty.
        timed: Launch times and stages. Launch: ns to launch a step of more tokens than the second entry; then
            the ns of a step with a chunk of at most that many tokens, of a decode step, for each decode
            sequence, of the tail after a launch, and a sequence's part of it. Stages: layers of each pipeline
            stage, ns of the head and ns between two stages, both by tokens; each may be empty.
    """

    def __new__(
        cls,
        bases_ns: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
        coefficients_fs: list[int],
        least_tokens: tuple[int, int],
        longest_fs: NDArray[np.int64],
        unsplit: list[int],
        residuals: list[tuple[list[int], list[int], list[int]]],
        timed: tuple[list[int], tuple[list[int], list[int], list[int]]],
    ) -> StepTable: ...

# transfers

@final
class Demand:
    """Samples of the rate demanded of a channel, in bytes/s (``channels.channel.Demand``)."""

    @property
    def hiding(self) -> NDArray[np.int64]:
        """For each step that used KV still arriving: its bytes over its own compute time."""
    @property
    def offered(self) -> NDArray[np.int64]:
        """Bytes sent in each second of simulated time with any transfer."""
    def ask(self, size_bytes: int, now_ns: int) -> None:
        """Count ``size_bytes`` as offered at ``now_ns``."""
    def hide(self, size_bytes: int, compute_ns: int) -> None:
        """Add a sample of ``size_bytes`` to hide behind ``compute_ns``."""

@final
class Channel:
    """A FIFO link, or with a ``timeline`` a link that is served layer by layer.

    Raises:
        StoreError: For no bandwidth, for a job without layers, and for a job that Python sends over a link
            with a ``timeline``.
    """

    def __new__(cls, settings: ChannelSettings, timeline: Timeline | None = None) -> Channel: ...
    @property
    def settings(self) -> ChannelSettings:
        """Rate, latency and sharing."""
    @property
    def by_layer(self) -> bool:
        """True if the link is served layer by layer: times are final only as they come."""
    @property
    def busy_ns(self) -> int:
        """Time in ns during which queued jobs occupy the link."""
    @property
    def queued_ns(self) -> int:
        """Time in ns that jobs have waited for earlier jobs, summed."""
    @property
    def sent_bytes(self) -> int:
        """Bytes queued so far."""
    @property
    def jobs(self) -> int:
        """Jobs queued so far."""
    @property
    def last_call_ns(self) -> int:
        """Time in ns of the last call."""
    @property
    def demand(self) -> Demand:
        """The rate demanded of the link."""
    def wait_ns(self, now_ns: int, pieces: int = ...) -> int:
        """Return the expected ns until the first byte of a job of ``pieces``."""
    def transmit(self, size_bytes: int, pieces: int, layers: int, now_ns: int) -> Transmission:
        """Queue a job and return its times.

        Args:
            size_bytes: Bytes of the job.
            pieces: Number of copies that the job consists of.
            layers: Layers that arrive one after another.
            now_ns: Simulated time in ns.
        """
    def forward(self, size_bytes: int, pieces: int, layers: int, feed: Transmission) -> Transmission:
        """Queue a job that forwards ``feed``, the transmission of an earlier link; return its times."""

@final
class Timeline:
    """The events of all channels of a cluster that the core serves layer by layer, in one order."""

    def __new__(cls) -> Timeline: ...

# serving

@final
class Cluster:
    """The replicas of a cluster, their events in one order, and the arrival of requests.

    ``next`` in the docs of the calls below is the next event: (time in ns, priority, machine), None if there
    is none. The priorities are those of ``engine.py``; machine -1 is a channel.

    Args:
        replicas: The machines that serve requests.
        between: Returns the ``Channel`` of (owner, reader), for machines that read each other's memory or
            hand over through it.
        apart: True if no machine depends on another, so each may run before the others.
        timeline: Events of the channels served layer by layer.
        pool: A pool that all machines share; its machine number follows the last replica's.
    """

    def __new__(
        cls,
        replicas: Sequence[Replica],
        between: Callable[[int, int], object] | None = None,
        apart: bool = False,
        timeline: Timeline | None = None,
        pool: Replica | None = None,
    ) -> Cluster: ...
    def open(
        self,
        choice: tuple[str, float, Fleet],
        machines: Sequence[int],
        digests: Sequence[Digest],
        holds: Sequence[tuple[int, int]],
    ) -> None:
        """Enable the native arrival path, in which the core routes requests.

        Args:
            choice: A routing rule's name, its parameter, and the candidate machines.
            machines: Machine numbers of the candidates.
            digests: By machine, the digest that records arrivals.
            holds: By machine, capacity in tokens for a prompt, and for a prompt with its answer.

        Raises:
            StoreError: For a rule that the core does not have, and for lists of other lengths.
        """

    def decode_by(
        self,
        choice: tuple[str, float, Fleet],
        machines: Sequence[int],
        holds: Sequence[int],
        between: Callable[[int, int], Sequence[Sequence[Channel] | ChosenLane]],
    ) -> None:
        """Enable the native choice of decode machines.

        Args:
            choice: As for ``open``.
            machines: Machine numbers of the candidates.
            holds: By candidate, capacity in tokens for a request.
            between: Returns the channels from one machine to another, as ``assign`` takes them.

        Raises:
            StoreError: As ``open``.
        """

    def step_together(
        self, size: int, dummy_ns: Sequence[int], shared_ns: Sequence[tuple[list[int], list[int]]]
    ) -> None:
        """Group each ``size`` consecutive machines as data-parallel ranks of one engine, which step together.

        Args:
            size: Ranks of an engine.
            dummy_ns: By engine, the time in ns of a step of a rank without requests.
            shared_ns: By engine, the time in ns of the work that all ranks share: by the tokens of the
                largest rank while CUDA graphs hold every rank's step, then by the tokens of all ranks.

        Raises:
            StoreError: If the groups do not cover all machines.
        """

    def feed(self, packed: bytes) -> tuple[int, int, int] | None:
        """Queue requests that will arrive, in order of time; return ``next``.

        Args:
            packed: Nine 64-bit integers for each request: number, arrival in ns, prompt tokens, answer
                tokens, session, turn, label, priority, and the ns after arrival at which its client aborts it
                (-1: never).

        Raises:
            ValueError: For another length.
            StoreError: If the native arrival path is not enabled.
        """

    def take_rejected(self) -> tuple[list[tuple[int, int]], bool]:
        """Return the requests rejected since the last call, and True if all requests fed have arrived.

        A rejection is (request, machine): the request did not fit the machine that it was routed to.
        """

    def take_rows(self) -> bytes:
        """Return the rows of the requests that finished on any machine since the last call."""

    def enqueue(
        self, machine: int, slot: int, now_ns: int
    ) -> tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]:
        """Add a request to a machine's queue; ``slot`` is its index there. Returns as ``abort``."""

    def prefetch(
        self, machine: int, wanted: tuple[int, int], now_ns: int
    ) -> tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]:
        """Prefetch blocks of a prompt from lower tiers; ``wanted`` = (request, prompt tokens).

        Returns as ``abort``.
        """

    def abort(
        self, machine: int, request: int, now_ns: int
    ) -> tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]:
        """Abort a request that was sent to ``machine``, wherever it is now.

        Returns:
            ``next``; (machine, request) of the requests that finished; rows of events
            (``metrics.event_log``). The last two are None if empty.
        """

    def longest(self, of: tuple[int, tuple[int, int, int]], now_ns: int) -> int | None:
        """Return the end of the longest run below the GPU of any other machine, as the block past its last.

        Args:
            of: The machine that would read; and the request, first block and limit.
            now_ns: Simulated time in ns.
        """

    def woken(self, machine: int) -> tuple[int, int, int] | None:
        """Record that Python changed a machine's state; return ``next``."""

    def run(
        self, now_ns: int, until_ns: int
    ) -> tuple[
        tuple[int, int, int] | None,
        tuple[int, tuple[int, int], tuple[int, int, int], tuple[int, int, bool, int]] | None,
        list[tuple[int, int]] | None,
        bytes | None,
    ]:
        """Run the next event, then the events before ``until_ns``.

        Returns:
            ``next``; a request whose decode machine ``assign`` must choose; (machine, request) of the
            requests that finished; rows of events. The request to assign is: its prefill machine, its number
            and arrival, its tokens and session as ``Replica.arrive`` takes them. The last three are None if
            empty.
        """

    def assign(
        self, machine: int, hops: Sequence[Sequence[Channel] | ChosenLane], expected_tokens: int
    ) -> tuple[int, int, int] | None:
        """Assign the request that ``run`` returned to a decode machine; return ``next``.

        Args:
            machine: The machine that decodes.
            hops: Parallel channels of each hop, of which the one with the shortest queue is used: between the
                two machines, or down, between and up if the hand-over crosses both machines' memory.
            expected_tokens: Tokens of KV expected to cross.

        Raises:
            StoreError: If no request is waiting for a decode machine.
        """

@final
class OperatedMachines:
    """Machines operated manually, without requests: the events of their transfers in one order.

    A machine is its store and its rules (``cache.operations.native.OperationRules``). ``between`` and
    ``timeline`` are those of ``Cluster``. A part is (tier, first block, past the last, move writing it).
    """

    def __new__(
        cls,
        machines: Sequence[tuple[object, object]],
        between: Callable[[int, int], object] | None = None,
        timeline: Timeline | None = None,
    ) -> OperatedMachines: ...
    def next(self) -> tuple[int, int, int] | None:
        """Return the next event as (time in ns, priority, machine), machine -1 for a channel; or None."""

    def run(self, now_ns: int) -> None:
        """Run the next event."""

    def issue(self, machine: int, now_ns: int) -> None:
        """Send the transmissions that a machine's store has decided."""

    def load(
        self,
        machine: int,
        of: tuple[int, int],
        part: tuple[int, int, int, int],
        freeing_moves: list[int],
        now_ns: int,
    ) -> int | None:
        """Load a part, or join its load.

        Args:
            machine: The machine.
            of: Request and lease.
            part: The part to load.
            freeing_moves: Moves that must finish first.
            now_ns: Simulated time in ns.

        Returns:
            The move, or None without capacity.
        """

    def longest(
        self, machine: int, wanted: tuple[int, int, int], now_ns: int
    ) -> tuple[int, list[tuple[int, int, int, int]]] | None:
        """Return the machine with the longest run below its GPU, and the run's parts.

        ``wanted`` = (request, first block, limit); ``machine``, which would read, is excluded.
        """

    def fetch(
        self, machine: int, request: int, source: tuple[int, tuple[int, int, int, int]], now_ns: int
    ) -> int | None:
        """Read a part of another machine; return the move, None if this machine has no capacity for it."""

    def arrive(
        self, machine: int, of: tuple[int, tuple[int, int], int], sent: Transmission, now_ns: int
    ) -> int | None:
        """Let a move arrive at the times of a transmission; ``of`` = (move, (from tier, to tier), blocks)."""

    def moves(self, machine: int) -> list[int]:
        """Return the moves of a machine that have not finished."""

    def keep(self, machine: int, id: int) -> tuple[int, int, int, int] | None:
        """Keep the transfer of a move after its end.

        Returns:
            (number, from tier, to tier, blocks), or None if the move has finished.
        """

    def sent(self, machine: int, number: int) -> Transmission | None:
        """Return the times of a kept transfer; None before it is on its channel."""

    @property
    def replicas(self) -> list[Replica]:
        """The machines, as ``projected`` takes them."""

    def edge_bytes(self, machine: int) -> list[tuple[int, int, int]]:
        """Return (from tier, to tier, bytes sent) of each edge."""

def projected(replicas: Sequence[Replica], machine: int, id: int) -> Transmission | None:
    """Return the times of a move that waits, if nothing else is queued.

    Args:
        replicas: All machines, by number, a shared pool last.
        machine: Number of the move's machine.
        id: The unfinished move.

    Returns:
        Its times; None on channels served layer by layer, or behind copies that a store has yet to order.
    """

@final
class OutputLog:
    """Output tokens and finished requests of the machines of a live run; see ``Replica.log_outputs``."""

    def __new__(cls) -> OutputLog: ...
    def take(self) -> list[tuple[int, int, list[int], list[int]]]:
        """Return the entries since the last call, in order of time.

        An entry: time in ns, machine, the request of each token, requests that finished or aborted.
        """

@final
class Replica:
    """Queue, admission, steps, transfers, milestones and rows of one machine.

    ``next`` in the docs of the calls below is the next event: (time in ns, phase), None if there is none.
    Phase 0 is an arrival, 1 a step boundary.

    Args:
        store: The machine's cache.
        table: The step-time model.
        batch: Has the attributes of ``serving.batch_settings.BatchSettings``.
        rules: Has the attributes of ``ServingRules`` in ``serving.replica.native_rules``.

    Raises:
        TypeError: If ``store`` is not a store.
        ValueError: For a queue order, a scheduling or a policy that the core does not have.
    """

    def __new__(cls, store: GpuStore, table: StepTable, batch: object, rules: object) -> Replica: ...
    @staticmethod
    def of_pool(store: Store, rules: object) -> Replica:
        """Return a pool that machines share; ``rules`` has the attributes of ``PoolRules``."""

    def pool_counts(self) -> tuple[int, int, int, int]:
        """Return a pool's blocks written, blocks read, blocks refused and bytes written."""

    @property
    def pool_hit_blocks(self) -> int:
        """Blocks of first admissions that came from a shared pool."""

    def arrive(
        self,
        request: int,
        tokens: tuple[int, int, int, int],
        session: tuple[int, int, bool, int],
        now_ns: int,
    ) -> int:
        """Add a request that is not in the queue yet; return its slot.

        Args:
            request: Number of the request.
            tokens: Tokens of the prompt, of the answer, prompt tokens that the router expected to be
                computed, and prompt tokens that repeat earlier turns (-1: not stated).
            session: Session number or -1, turn, True if it is labeled conversational, and priority.
            now_ns: Simulated time in ns.
        """

    def arrive_in_queue(
        self,
        request: int,
        tokens: tuple[int, int, int, int],
        session: tuple[int, int, bool, int],
        now_ns: int,
    ) -> tuple[int, int] | None:
        """Add a request as ``arrive`` does and queue it; return ``next``."""

    def reaches_ns(self, slot: int) -> int:
        """Return the time at which a request that has just arrived reaches the scheduler."""

    def received(self, slot: int, now_ns: int) -> None:
        """Record the time at which a request reached the scheduler."""

    def enqueue(self, slot: int, now_ns: int) -> tuple[int, int] | None:
        """Queue a request that has been looked up; return ``next``."""

    def prefetch(self, request: int, tokens: int, now_ns: int) -> tuple[int, int] | None:
        """Prefetch blocks of a prompt of ``tokens`` from lower tiers; return ``next``."""

    @property
    def prefetched_blocks(self) -> int:
        """Blocks prefetched before their requests so far."""

    def run(self, until_ns: int) -> tuple[tuple[int, int] | None, list[int] | None, bytes | None]:
        """Run all events of the next moment and phase, then the events before ``until_ns``.

        Returns:
            ``next``; the requests that finished; rows of events (``metrics.event_log``). The last two are
            None if empty.
        """

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that started before ``now_ns``."""

    def abort(
        self, request: int, now_ns: int
    ) -> tuple[tuple[int, int] | None, list[int] | None, bytes | None]:
        """Abort a request if it is on this machine; returns as ``run``."""

    def news(self) -> tuple[tuple[int, int] | None, list[int] | None, bytes | None]:
        """Return as ``run`` without running an event."""

    def take_rows(self) -> bytes:
        """Return and clear the rows of finished requests: 64-bit integers in the order of their columns."""

    def notify_prefilled(self) -> None:
        """Start logging the requests whose prompt has been computed."""

    def take_prefilled(self) -> list[tuple[int, int]]:
        """Return (request, prompt tokens) of the prompts computed since the last call."""

    def log_outputs(self, log: OutputLog) -> None:
        """Log tokens and finished requests from now on; steps run one by one from then on."""

    @property
    def is_moving(self) -> bool:
        """True if a copy between tiers is in flight."""

    def log_schedule(self) -> None:
        """Start logging the schedule of an engine's own scheduler."""

    def schedule(
        self,
    ) -> (
        tuple[
            list[int],
            list[tuple[int, int, int, int, int]],
            list[tuple[int, int, int]],
            list[tuple[int, int, int, int, int]],
        ]
        | None
    ):
        """Return the counts, steps, admissions and requests of a ``ScheduleLog``, None without a log."""

    def log_steps(self) -> None:
        """Start logging steps."""
    def take_steps(self) -> list[tuple[int, int, int, int]]:
        """Return the steps since the last call.

        A step is (start in ns, duration in ns, prefill tokens, decode sequences).
        """
    def counts(self) -> tuple[int, int, int, int]:
        """Return (requests waiting, running, waiting for KV, tokens generated)."""

    @property
    def requests(self) -> int:
        """Requests sent here that have not finished."""
    @property
    def queued_tokens(self) -> int:
        """Prompt tokens sent here that are not computed yet."""
    @property
    def expected_prefill_tokens(self) -> int:
        """Prompt tokens not computed yet, of those that the router expected to be computed."""
    @property
    def steps(self) -> int:
        """Steps run so far."""
    def edge_bytes(self) -> list[tuple[int, int, int]]:
        """Return (from tier, to tier, bytes sent) of each edge that sent any."""

    def moved_bytes(self) -> list[tuple[int, int]]:
        """Return by tier (bytes read from it, bytes written to it); empty for a GPU-only machine."""

    def take_drained(self) -> bool:
        """Return True if no move was in flight at some moment since a request last finished.

        Moments before the last call do not count.
        """

    @property
    def open_moves(self) -> int:
        """Number of moves in flight."""

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return (decode steps of a sequence, tokens drafted, tokens accepted by position) of speculation."""
    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the inter-token latency histogram: lower edges (ns), counts, count, sum, min, max (ns)."""

def sglang_pass(
    replica: Replica,
    ended: Sequence[tuple[int, int, int, int]],
    running: Sequence[tuple[int, int, int, int]],
    waiting: Sequence[tuple[int, int, int, int]],
    ratio: float,
) -> tuple[int, list[tuple[int, int, int]], list[int], int | None, bool]:
    """Compose one prefill step of SGLang's scheduler from a given state, on a new replica.

    A request is (number, prompt tokens, answer tokens, answer tokens generated).

    Args:
        replica: A new replica with SGLang's scheduler.
        ended: Requests that ran one after another and finished; their KV is in the tree.
        running: Requests that run, added while the tree has capacity for the next.
        waiting: The queue.
        ratio: Part of each answer that is reserved (``new_token_ratio``).

    Returns:
        The number of running requests; (request, first token, past the last) that the step computes, in order
        of admission; the queue after the step; the prompt that continues in the next step; and True if no
        request can be admitted before a running request finishes.

    Raises:
        ValueError: For a replica with another scheduler.
    """

# what plug-ins see

@final
class FetchPlan:
    """A reusable run of blocks, as a fetch policy sees it.

    Estimates use the channels' queues at the time of the call.
    """

    @property
    def parts(self) -> list[Any]:
        """The parts (``Part``), from the first block on."""

    @property
    def ready(self) -> int:
        """Leading blocks that are ready for computation."""
    @property
    def end(self) -> int:
        """Block after the last one found."""
    @property
    def layers(self) -> int:
        """Number of layers."""
    @property
    def pipelining(self) -> bool:
        """True if computation may start before all layers have arrived."""
    def arrival_ns(self, blocks: int) -> tuple[int, int]:
        """Return the ns from now until the first and the last layer of the first ``blocks`` should arrive."""

    def compute_ns(self, blocks: int) -> int:
        """Return the time in ns to compute everything after the first ``blocks``."""

    def done_ns(self, blocks: int) -> int:
        """Return the ns from now until the prefill should end if the first ``blocks`` are reused."""

# fleet

@final
class Fleet:
    """The stores of all machines, each with its replica; used for routing decisions.

    Raises:
        StoreError: For lists of other lengths.
    """

    def __new__(
        cls,
        stores: Sequence[Store | PoolStore | RadixStore | GroupStore | TieredPoolStore | TokenStore],
        replicas: Sequence[Replica],
    ) -> Fleet: ...
    def look(self, request: int, limit: int, now_ns: int) -> tuple[list[int], list[int], list[int]]:
        """Look a prompt up on all machines, as of ``now_ns``; recency does not change.

        Replicas first run the iterations that started before ``now_ns``.

        Args:
            request: Request to look up.
            limit: Leading blocks that may be found.
            now_ns: Simulated time in ns.

        Returns:
            By machine: leading blocks found, blocks active on the GPU, and leading blocks ready on the GPU.
        """

    def prefill_times(self, wanted: tuple[int, int], tokens: int, now_ns: int) -> list[int]:
        """Return by machine the estimated time (ns) to load and compute a prompt, channels' queues included.

        Args:
            wanted: Request, and leading blocks that may be found.
            tokens: Tokens of the prompt.
            now_ns: Simulated time in ns.
        """

    def longest(
        self, wanted: tuple[int, int], now_ns: int, loads: Sequence[int] | None, threshold: float
    ) -> int:
        """Return the machine that longest-prefix routing chooses.

        Of equal machines the least often chosen wins, then the first (``router.prefix.equally_long``,
        ``router.plain.Ties``).

        Args:
            wanted: Request, and leading blocks that may be found.
            now_ns: Simulated time in ns.
            loads: Load by machine; None: the requests of its replica.
            threshold: Parameter of the rule.
        """

@final
class HostedCache:
    """A provider's prompt cache: prefixes of content blocks, kept for a time.

    Prefixes are handles; 0 is the empty one, from which each model and workspace begins with a block of its
    name. Raises ``StoreError`` for an unknown handle.
    """

    def __new__(cls, look_back: int | None, searched: int | None) -> HostedCache:
        """Return an empty cache.

        Args:
            look_back: Blocks behind a breakpoint within which a kept prefix is found; None: breakpoints do
                not matter.
            searched: Kept prefixes that are looked at, longest first; None: all.
        """

    def extend(self, prefix: int, contents: Sequence[int]) -> tuple[list[int], int]:
        """Return (the prefix that ends with each added block, how many of them were known before)."""

    def path(self, prefix: int) -> list[int]:
        """Return a prefix and those within it, shortest first, without the empty one."""

    def find(self, tail: int, marks: Sequence[int], now_ns: int) -> tuple[int | None, int | None, str]:
        """Return (what is read, what was written before and is not read, why) for a prompt.

        ``marks`` are its breakpoints. The reason is ``ttl``, ``concurrent`` (its request's answer has not
        begun) or ``look-back``; "" if nothing longer was written.
        """

    def refresh(self, prefix: int, now_ns: int) -> None:
        """Count a read: the prefix, and all kept ones within it, live on."""

    def write(self, prefixes: Sequence[int], life: tuple[int, int, int, int]) -> None:
        """Keep prefixes; ``life`` is (start of the request, first token, ns kept unused, ns kept in all)."""

    def write_path(self, tail: int, life: tuple[int, int, int, int]) -> None:
        """Keep a prefix and every prefix within it."""

@final
class GatewayRule:
    """A gateway's rule with its state, over the requests and GPU prefixes of all machines.

    Sources and formulas: ``rust/core/src/cluster/routing``.
    """

    @staticmethod
    def lmetric(class_blocks: int, window: int) -> GatewayRule:
        """Return LMetric; ``class_blocks`` 0: without its detector of hot prefixes."""

    @staticmethod
    def two_tier(balance_abs: int, balance_rel: float, cache: float) -> GatewayRule:
        """Return Dynamo's two-tier cost with these thresholds."""

    @staticmethod
    def two_tier_adaptive(interval_ns: int, load_scale: float) -> GatewayRule:
        """Return the adaptive mode of the two-tier cost."""

    @staticmethod
    def aimd(interval_ns: int, load_scale: float, sigmoid: bool) -> GatewayRule:
        """Return Dynamo's adaptive controller."""

    def choose(
        self,
        prompt: tuple[int, int],
        class_: int | None,
        gpu_blocks: Sequence[int],
        active: Sequence[int],
        now_ns: int,
    ) -> list[int]:
        """Return the equally good machines in ascending order.

        Args:
            prompt: Tokens of the prompt, and tokens of a block.
            class_: Name of its first blocks; None: the prompt is shorter, or the rule has no classes.
            gpu_blocks: By machine, leading blocks of the prompt on its GPU.
            active: By machine, the unfinished requests sent there.
            now_ns: Simulated time in ns.

        Raises:
            StoreError: For lists of unequal lengths.
        """

@final
class Sampled:
    """Native replicas with their number of tiers, as ``metrics.sampler`` reads them."""

    def __new__(cls, replicas: Sequence[Replica], tiers: Sequence[int]) -> Sampled:
        """Keep the machines; raises ValueError for lists of unequal length."""

    def sample(self, now_ns: int) -> bytes:
        """Return the state of all machines as little-endian 64-bit integers.

        By machine: the counts of ``Replica.counts``, then for each tier the free, active, cached and
        in-flight blocks. Iterations that started before ``now_ns`` are run first.
        """

    def publish_load(self) -> None:
        """Make the machines publish their load at the end of each step; steps run one by one from then on."""

    def loads(self) -> list[tuple[int, int, int]]:
        """Return by machine what it published last: waiting and running requests, GPU blocks in use.

        Waiting requests are those that its last schedule left, with those whose KV has not arrived. All are
        zero before the end of its first step, and without ``publish_load``.
        """

# digest

@final
class Digest:
    """A 64-bit rolling hash over records."""

    def __new__(cls) -> Digest:
        """Return a digest of no records."""
    def record(self, kind: int, time_ns: int, subject: int, value: int) -> None:
        """Add a record."""
    @property
    def value(self) -> int:
        """The hash so far."""

# packaged

def toml_values(text: str) -> dict[str, Any]:
    """Return a TOML document as ``tomllib.loads`` does; ValueError for another text or a date."""

@final
class Sha256:
    """SHA-256 of bytes that are added one after another, as ``hashlib.sha256``."""

    def __new__(cls, data: bytes | None = None) -> Sha256:
        """Return a digest that begins with ``data``."""
    def update(self, data: bytes) -> None:
        """Add bytes."""
    def digest(self) -> bytes:
        """Return the digest so far."""
    def hexdigest(self) -> str:
        """Return the digest so far in hex."""

# table: Parquet

@final
class TableWriter:
    """A Parquet file written one row group at a time; see ``metrics.tables.TableFile``."""

    def __new__(cls, path: PathLike[str], columns: Sequence[tuple[str, str, str]]) -> TableWriter:
        """Create the file from (name, dtype, meaning) of each column; raises OSError if that fails."""

    def write(self, rows: int, columns: Sequence[object]) -> None:
        """Write one row group.

        Args:
            rows: Rows of the group.
            columns: For each column an array of its dtype, shape (rows,); for texts (int32 codes, words).

        Raises:
            ValueError: For a wrong number of columns, other lengths, or a code without a word.
        """

    def close(self) -> None:
        """Write the footer, without which no reader accepts the file."""

# causes of missed prompt tokens

#: The names of the causes, in the order of the columns (``replay.miss_causes.MISS_CAUSES``).
MISS_CAUSES: tuple[str, ...]

def policy_miss_tokens(
    id_offsets: NDArray[np.int64],
    block_ids: NDArray[np.uint32],
    blocks_per_id: int,
    block_size_tokens: int,
    input_tokens: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    limits: NDArray[np.uint32],
    known: NDArray[np.uint32],
    admitted: NDArray[np.int64],
    hits: NDArray[np.uint32],
) -> NDArray[np.int64]:
    """Return the missed tokens of a policy replay, shape (requests, causes).

    A row sums to the prompt minus its hit. Releases the GIL.

    Args:
        id_offsets: Start of each request's ids, shape (requests + 1,).
        block_ids: Block ids of all requests, flat.
        blocks_per_id: Blocks that one id names.
        block_size_tokens: Tokens per block.
        input_tokens: Prompt tokens by request.
        blocks: Leading blocks of each request that its ids name.
        limits: Leading blocks that may hit.
        known: Leading blocks that an earlier prompt contained.
        admitted: Known blocks that the cache had admitted.
        hits: Leading blocks found.

    Raises:
        ValueError: For arrays that do not fit together.
    """

def timed_miss_tokens(
    id_offsets: NDArray[np.int64],
    block_ids: NDArray[np.uint32],
    id_tokens: int,
    block_size_tokens: int,
    continuation: NDArray[np.int32],
    finished: NDArray[np.bool_],
    machine: NDArray[np.int64],
    decode_machine: NDArray[np.int64],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    cached_tokens: NDArray[np.int64],
    admitted_ns: NDArray[np.int64],
    first_token_ns: NDArray[np.int64],
    finish_ns: NDArray[np.int64],
    junction_tokens: NDArray[np.int64],
    junction_cause: NDArray[np.uint8],
    kept: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the missed tokens of a timed run, shape (requests, causes), and idle times.

    The row of a finished request sums to prompt minus cached tokens; other rows are 0. Cost: linear in the
    ids, and a sort. Releases the GIL.

    Args:
        id_offsets: Start of each request's ids, shape (requests + 1,).
        block_ids: Block ids of all requests, flat.
        id_tokens: Tokens that one id names.
        block_size_tokens: Tokens per block.
        continuation: The turn whose ids name a request's answer, negative: none.
        finished: True for the requests that finished.
        machine: Machine of each request.
        decode_machine: The machine that it was handed to after its prompt, negative: none.
        input_tokens: Prompt tokens.
        output_tokens: Answer tokens.
        cached_tokens: Prompt tokens found in the cache.
        admitted_ns: Time of admission in ns.
        first_token_ns: Time of the first token in ns.
        finish_ns: Time of the last token in ns.
        junction_tokens: Tokens that part of the cache had beyond the cached ones.
        junction_cause: 0: a window was not kept there; 1: a state; 2: what was found was not loaded.
        kept: True if the cache admits all blocks and keeps them within reach.

    Returns:
        The missed tokens; and by request the longest time in ns since the last use of an evicted block, -1
        without one.

    Raises:
        ValueError: For columns that do not fit together.
    """

# exact: the cache managers of real engines

@final
class EngineRequests:
    """Requests to replay through engines' cache managers, each time from an empty cache.

    All methods release the GIL. With ``explain`` answers have ``miss_tokens``, shape (requests, causes), and
    ``evicted_misses``, rows of (request, request whose demand evicted, blocks); else both are None.

    Args:
        keys: Block keys of all requests.
        input_tokens: Prompt tokens by request.
        total_tokens: Prompt and answer tokens by request.
        block_size: Tokens per block.
        window: Requests in flight at a time.
        explain: True to attribute misses to causes.

    Raises:
        ValueError: For lengths that do not fit, or a policy that does not exist.
    """

    def __new__(
        cls,
        keys: Keys,
        input_tokens: NDArray[np.uint64],
        total_tokens: NDArray[np.uint64],
        block_size: int,
        window: int,
        explain: bool,
    ) -> EngineRequests: ...
    def vllm(self, capacity_blocks: int) -> dict[str, Any]:
        """Replay vLLM's block pool.

        Returns:
            hits, forced, taken, inserted, evicted, cached_blocks, unique_keys, free_queue.
        """
    def vllm_offloading(
        self,
        capacity_blocks: int,
        policy: str,
        chunks: tuple[int, int],
        store_threshold: int,
        step_tokens: int,
    ) -> dict[str, Any]:
        """Replay vLLM's block pool with CPU offloading, in steps of at most ``step_tokens`` tokens.

        ``chunks``: chunks of the CPU, and blocks of a chunk.

        Returns:
            The entries of ``vllm``, and loaded, stored, tier_evicted, refused, resident, arc.
        """
    def vllm_tiering(
        self, capacity_blocks: int, policy: str, cpu_blocks: int, step_tokens: int
    ) -> dict[str, Any]:
        """Replay vLLM's block pool with CPU offloading and a secondary tier.

        Returns:
            The entries of ``vllm_offloading``, and promoted, aborted, and below: the secondary tier's
            blocks.
        """
    def offload(self, policy: str, capacity_blocks: int, store_threshold: int) -> dict[str, Any]:
        """Replay vLLM's CPU tier alone.

        Returns:
            hits, stored, evicted, refused, and arc: (t1, t2, b1, b2, target) or None.
        """

@final
class KvGroups:
    """The KV cache groups of a model under vLLM's manager, over a trace.

    Args:
        groups: Of each: kind, tokens per block, window or chunk in tokens, keys of units, units per block.
        align: Tokens of which every hit is a multiple.

    Raises:
        StoreError: For groups that vLLM does not allow.
    """

    def __new__(cls, groups: Sequence[tuple[str, int, int, Keys, int]], align: int) -> KvGroups: ...
    def replay(
        self,
        input_tokens: NDArray[np.uint64],
        total_tokens: NDArray[np.uint64],
        window: tuple[int, bool],
        limits: tuple[int, int | None, int],
        capacity_blocks: int,
    ) -> dict[str, Any]:
        """Replay the requests in file order.

        Args:
            input_tokens: Prompt tokens by request.
            total_tokens: Prompt and answer tokens by request.
            window: Requests in flight at a time, and True to count each group's own hits.
            limits: Tokens of a step, the retention interval in tokens (None: none), and the longest sequence.
            capacity_blocks: Blocks of the pool.

        Returns:
            hits, forced, taken, inserted, evicted, junctions, unkept, lost_*, chunks, peak_*, keyed_*,
            queue_*.
        """
    def queue_lines(
        self,
        groups: NDArray[np.uint8],
        keys: NDArray[np.uint64],
        hash_block: int,
        trace_block: int,
        names: list[str],
    ) -> str:
        """Return the free queue's lines for its digest.

        Args:
            groups: Group of each free block.
            keys: Key of each free block.
            hash_block: Tokens per unit of keys.
            trace_block: Tokens that one id names.
            names: Names of the ids; empty: the ids themselves.
        """

def replay_sglang(
    requests: EngineRequests,
    tree: str,
    strategy: tuple[str, int, int],
    capacity_tokens: int,
    host: tuple[str, int] | None = None,
    storage: tuple[int | None, int] | None = None,
) -> dict[str, Any]:
    """Replay one of SGLang's trees.

    Args:
        requests: The requests.
        tree: ``classic`` or ``unified``.
        strategy: Eviction strategy, with tlru's threshold and expected next prompt, in tokens.
        capacity_tokens: Tokens of the device tier.
        host: Write policy and pages of the host tier; the classic tree has none.
        storage: Pages of the storage (None: unbounded) and the fewest tokens that are prefetched.

    Returns:
        hits, loaded, prefetched, and the counts forced, evict_calls, evicted_*, device_*, host_*, storage_*,
        leaf_* and heap_bytes.
    """

def replay_lmcache(
    requests: EngineRequests, policy: str, cpu_chunks: int, disk_chunks: int
) -> dict[str, Any]:
    """Replay LMCache's tiers; ``disk_chunks`` 0: no disk tier.

    Returns:
        hits, from_disk, cpu_hits, stored, short_stores, *_evictions, *_keys.
    """

def replay_lmcache_server(
    requests: EngineRequests,
    times_ns: NDArray[np.uint64],
    policy: str,
    chunks: tuple[int, int],
    step_tokens: int,
) -> dict[str, Any]:
    """Replay LMCache's server, whose loops start at 0; ``chunks``: of memory, and of storage (0: none).

    Returns:
        hits, from_disk, keys, disk_keys, stored, lost, evicted (of both).
    """

def key_lines(keys: NDArray[np.uint64], blocks_per_id: int, names: list[str]) -> str:
    """Return the lines of vLLM's free queue for its digest; without names the ids stand for themselves."""
