"""The native core: the contract of every class and function of ``kvcache_sim._core``."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, NotRequired, Protocol, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.cache.groups import Brought, Newcomer
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from kvcache_sim.cache.store import EvictionCounts, GpuStore, Occupancy, Order
from kvcache_sim.cache.tier_rules import ChosenLane
from kvcache_sim.channels.channel import Transmission
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.policies.plugins.hosted import HostedOrder, HostedPriority

__all__ = [
    "MISS_CAUSES",
    "Channel",
    "Cluster",
    "Demand",
    "Digest",
    "EngineRequests",
    "FetchPlan",
    "Fleet",
    "GroupStore",
    "Keys",
    "KvGroups",
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
    "key_lines",
    "native_policies",
    "policy_miss_tokens",
    "replay_lmcache",
    "replay_sglang",
    "reuse_distances",
    "seeds_of_ids",
    "seeds_of_names",
    "sglang_pass",
    "timed_miss_tokens",
    "write_token_rows",
]
__version__: str
__release__: bool

# trace: sources and the columns read from them

def reuse_distances(ids: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return how many distinct ids stand between each reference and its id's last one; -1 at the first."""

class TraceProblem(ValueError):
    """A refused trace; ``args`` are line, col (0: none), kind, what, got, expected, hint."""

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
    """Column names of one format of CSV; ``time_unit_ns`` 0 means dates; an empty name: no column."""

    time: str
    time_unit_ns: int
    input: str
    output: str
    session: str

@type_check_only
class RawSettings(TypedDict):
    """How to read; ``order`` is error, sort or keep (sort leaves the sorting to the caller)."""

    block_size: int
    skip: bool
    order: str
    keep_unknown: bool
    any_integer: bool

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
    """What a reader hands over: all rows, and what it found on the way."""

    #: The file's own, or 0.
    block_size: int
    #: (request, what it waits for) beside ``after``; of readers in Python alone.
    also_after: NotRequired[NDArray[np.int32]]
    new_input_only: bool
    id_names: NDArray[np.uint64] | list[str]
    problems: list[tuple[int, int, str, str, str, str, str]]
    problem_counts: list[tuple[str, int]]
    findings: list[tuple[str, int, int, str]]
    lines: int
    bytes: int
    unordered: bool

@final
class TraceRows:
    """Rows of JSON of a source, read some at a time; the source is taken over."""

    def __new__(cls, source: TraceSource, schema: JsonlSchema, settings: RawSettings) -> TraceRows: ...
    def read(self, most: int) -> bool:
        """Read until ``most`` rows wait and return whether there may be more; raises ``TraceProblem``."""
    @property
    def alone(self) -> bool:
        """Whether every row so far stands alone: without session, pause or predecessor, with ids."""
    def take(self) -> RowColumns:
        """Return the waiting rows; numbers of ids go on in the next ones."""
    def keep_ids(self, numbers: NDArray[np.uint32]) -> None:
        """Forget all block ids but these: one that is forgotten and comes again is a new one."""
    def finish(self) -> tuple[RawColumns, TraceSource]:
        """Return the waiting rows with every finding, and the source for its digest."""

@final
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
    def read_csv(self, schema: CsvSchema, settings: RawSettings) -> RawColumns:
        """Return every row's columns, without block ids; raises ``TraceProblem``. The GIL is released."""
    def read_weka(self, settings: RawSettings) -> RawColumns:
        """Return the rows of WEKA sessions; ``block_size`` 0 takes the file's. Raises ``TraceProblem``."""

# replay: cache decisions without time

@final
class ReplayAnswer:
    """What one replay decided."""

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
        """Blocks that each request found."""
    @property
    def evictions(self) -> int:
        """Blocks that left, to make room or because their time had run out."""
    @property
    def expired(self) -> int:
        """Of the evictions, blocks whose time had run out."""
    @property
    def resident(self) -> int:
        """Blocks resident at the end."""
    @property
    def missed(self) -> NDArray[np.int64]:
        """Known blocks that were missed: request, whose demand had evicted them (-1: they never came in),
        blocks, flat; none where ``known`` is not given."""

@final
class ReplayPrompts:
    """The prompts of a trace cut into blocks, copied once; every replay starts from an empty tier.

    ``touch_from`` is tail or root; ``capacity`` counts blocks and is at least 1. ``known`` are
    leading blocks of each request whose misses are told. All release the GIL, and raise
    ``ValueError`` for an unknown name, no capacity, more blocks than 32 bits number, or where a request
    names an id twice.
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
        """Replay the clairvoyant ceiling: prefix-closed, with bypass."""
    def belady_flat(self, capacity: int, touch_from: str) -> ReplayAnswer:
        """Replay the clairvoyant ceiling of a flat cache that inserts every miss."""
    def reuses(self, limits: NDArray[np.uint32], touch_from: str) -> ReuseColumns:
        """Return every reuse with the capacities from which least recently used finds it, in one pass."""

@final
class ReuseColumns:
    """Every reuse of a trace: blocks of one request that hit together, an entry each."""

    @property
    def request(self) -> NDArray[np.uint32]:
        """The request that uses blocks again."""
    @property
    def capacity(self) -> NDArray[np.uint64]:
        """The capacity from which the first of them is found."""
    @property
    def blocks(self) -> NDArray[np.uint32]:
        """How many there are."""
    @property
    def step(self) -> NDArray[np.uint32]:
        """Capacity that each further one needs beyond the one before."""
    @property
    def before(self) -> NDArray[np.uint32]:
        """The request that touched them before."""

def native_policies() -> list[tuple[str, str]]:
    """Return the name and the kind (``ranked`` or ``queue``) of every eviction policy of the core."""

@final
class ReplayPolicySettings:
    """What some policies need: ttl's time, pgdsf's attention length, priority's (from, to, priority, ns).

    ``names`` is what wtinylfu's sketch knows each block by; without them its number counted from 1.

    ``ValueError`` for a number out of its range.
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
    """Return ``random.Random(seed).randrange(stop)`` of each seed; ValueError where stop is 0."""

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
    """Write rows ``first_row`` to ``last_row`` (excluded) one after another, filling ``out`` exactly.

    A corpus N stands for the ids 0 … N−1. ValueError for columns that do not fit each other.
    """

# store: the block store of one machine; see cache/store.py and cache/tree_store.py for what each call means

@final
class Keys:
    """Block keys of all requests, shared by the caches of all machines.

    Block b of request r is named by ids where ``b < full_blocks[r]``, by ``continuation[r]`` (2^32 - 1: none)
    where that request's ids name it, and has a key of its own otherwise. ``StoreError`` for shapes that do
    not belong together.
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
        """Return the keys of these requests and of those that stores still name; further ones come behind."""
    def kept_ids(self) -> NDArray[np.uint32]:
        """Return the different ids, in ascending order."""
    def appended(
        self, id_offsets: NDArray[np.int64], block_ids: NDArray[np.uint32], full_blocks: NDArray[np.uint32]
    ) -> Keys:
        """Return these keys with those of further requests; raises as the class does."""
    def grow(
        self,
        stores: Sequence[Store | PoolStore],
        columns: tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]],
        ids: int,
    ) -> None:
        """Add requests behind the last one: offsets, ids below ``ids``, full blocks; raises as the class.

        ``stores`` are all that share these keys. Cost: linear in what is added.
        """
    def key(self, request: int, block: int) -> int:
        """Return a key; only one request can have one with bit 63 set."""

@type_check_only
class MachineStore(Protocol):
    """What every store of a machine answers; see ``cache/store.py``."""

    def peek(self, request: int, limit: int) -> tuple[int, int]: ...
    def acquire(self, request: int, depth: int) -> int: ...
    def abandon(self, lease: int) -> None: ...
    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None: ...
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None: ...
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """``ready``: when their first layer, and all, were computed, in ns; None: the latest time told."""
    def depth(self, lease: int) -> int: ...
    def release(self, lease: int, now_ns: int) -> None: ...
    def occupancy(self, tier: int) -> Occupancy: ...
    def eviction_counts(self, tier: int) -> EvictionCounts: ...
    def note(self, kind: int, now_ns: int, subject: int, value: int) -> None: ...
    def log_evictions(self) -> None: ...
    def take_evictions(self) -> list[tuple[int, int, int]]: ...
    def check(self) -> None: ...
    @property
    def digest(self) -> int: ...
    @property
    def merged_blocks(self) -> int: ...

@type_check_only
class LowerTiers(Protocol):
    """What a store with tiers below the GPU answers besides."""

    def take_orders(self) -> list[Order]: ...
    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Tell when what a move writes will be ready; its copies keep the times."""
    def finish_move(self, move: int) -> None: ...
    def duplicates(self, tier: int) -> int: ...
    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Report that a step of these leases has ended, to a store that copies down what steps compute."""

@type_check_only
class LoadedStore(Protocol):
    """What a store answers whose requests load blocks from the tiers below, one after the other."""

    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]: ...
    def protect(self, request: int, end: int, tier: int) -> int: ...
    def unprotect(self, tier: int, hold: int) -> None: ...
    def load(self, lease: int, to: int, after: list[int]) -> int: ...
    def join(self, lease: int, to: int) -> None: ...

@final
class Store(MachineStore, LowerTiers, LoadedStore):
    """The native ``MarkingStore``: a radix trie of block runs. Capacities in blocks, None without bound."""

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
    ) -> Store:
        """``orders`` by tier: None is recency; else a policy (name, settings, blocks) or a plug-in.

        ``touch``: what makes blocks recent, where the order is recency.
        """
    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]: ...
    def stage(
        self, request: int, part: tuple[int, int], to_tier: int, ready: int | None, now_ns: int
    ) -> int | None: ...
    def write_through(self, lease: int, start: int, end: int, now_ns: int) -> int | None: ...
    def write_selected(self, lease: int, tier: int, uses: int, now_ns: int) -> int | None: ...
    def write_on(self, move: int, now_ns: int) -> int | None: ...
    def touch(self, request: int, end: int) -> None: ...
    def discard(self, request: int, start: int, end: int) -> None: ...
    def match_below(self, request: int, start: int, limit: int) -> list[tuple[int, int, int, int]]: ...
    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]: ...
    def residency(self, request: int, limit: int) -> list[tuple[int, list[tuple[int, int, int, int, int]]]]:
        """The found run in parts: (past the last block, copies from fast to slow).

        A copy is (tier, move writing it, first layer ready, whole ready, last access), times in ns.
        """
    def moved_paths(self, move: int) -> list[tuple[int, int]]: ...
    def take_keys(self, keys: Keys) -> None:
        """Take keys that name what this store still names, and requests to come."""
    def claim(self, tier: int, blocks: int, now_ns: int) -> tuple[int, list[int]] | None: ...
    def release_claim(self, claim: int) -> None: ...
    def fill_claim(self, claim: int, request: int, part: tuple[int, int], source: int | None) -> bool: ...
    def remove(self, request: int, part: tuple[int, int], tier: int) -> int: ...
    def lend(self, request: int, end: int, tier: int) -> int: ...
    def receive(self, request: int, part: tuple[int, int], now_ns: int) -> int | None: ...
    def expire(self, now_ns: int) -> None: ...
    def drop_copy(self, request: int, start: int, end: int, tier: int) -> None: ...
    @property
    def runs(self) -> int:
        """Live runs in the trie."""
    def log_changes(self) -> None:
        """Start keeping which blocks come to a tier and leave it."""
    def take_changes(self) -> list[tuple[int, bool, int]]:
        """Return (tier, whether it came, key) of the changes since the last call, in their order."""
    def clear(self) -> bool:
        """Let go of every block; False, and no change, while some are held or moved."""

@final
class PoolStore(MachineStore):
    """vLLM's block pool as the store of a machine with a GPU tier alone; calls as in ``Store``.

    A request has one lease at a time, and its first reservation comes by itself.
    """

    def __new__(cls, keys: Keys, capacity_blocks: int) -> PoolStore: ...
    def free_queue(self) -> list[int | None]:
        """Return the keys of the free blocks, next to be taken first; None where there is none."""

    def log_changes(self) -> None:
        """Start keeping which blocks come to a tier and leave it."""
    def take_changes(self) -> list[tuple[int, bool, int]]:
        """Return (tier, whether it came, key) of the changes since the last call, in their order."""
    def clear(self) -> bool:
        """Let go of every block; False, and no change, while some are held or moved."""

@final
class TokenStore(MachineStore):
    """A machine's cache as a count of unique tokens: blocks in its calls are tokens."""

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
            keys: Names the blocks of requests.
            prompts: By request the number of its session (negative: none), the tokens of its prompt, and
                those that a context window left of its history (negative: not known).
            block_size_tokens: Tokens of a block of the trace, of which shared prefixes are made.
            capacity_tokens: None without bound.
            session_view: Bounds on the known sessions.
            prefix_view: When a prefix may be shared, and how many tokens all of them have.
        """

    def find(self, request: int, limit: int, now_ns: int) -> int:
        """Return the tokens found, once the sessions are gone whose time to live is over."""

    def uses(self, request: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (past the last token, users, access) of each shared prefix of a prompt."""

    def session_tokens(self, session: int, now_ns: int) -> int | None:
        """Return what a session's last completed turn left; None where no turn of it is known."""

    def observe(self, request: int, prompt_tokens: int) -> None:
        """Count the prefixes of a prompt that is admitted for the first time."""

    def complete_turn(self, request: int, session: int, tokens: int, now_ns: int) -> None:
        """Keep the tokens of a completed turn for its session's next one."""

    @property
    def used(self) -> int:
        """Unique tokens in memory."""

@final
class TieredPoolStore(MachineStore, LowerTiers, LoadedStore):
    """vLLM's block pool with an engine's tiers below, as the store of a machine; calls as in ``Store``.

    A request has one lease at a time, and its first reservation comes by itself. ``prompts`` are the tokens
    of each request's prompt, and of a block.
    """

    @staticmethod
    def with_offload(
        keys: Keys, capacity_blocks: int, cpu_blocks: int, policy: str, prompts: tuple[list[int], int]
    ) -> TieredPoolStore:
        """Return an empty store with vLLM's CPU offloading below, under ``lru`` or ``arc``."""

    @staticmethod
    def with_lmcache(
        keys: Keys,
        capacity_blocks: int,
        chunks: tuple[int, int],
        policy: str,
        prompts: tuple[list[int], int],
    ) -> TieredPoolStore:
        """Return an empty store with LMCache's CPU and disk tiers below; a disk of no chunks is none."""

@final
class GroupStore(MachineStore, LowerTiers):
    """A pool of several cache groups as the store of a machine with a GPU tier alone, or above one tier.

    Calls as in ``cache.store.GroupStore``; ``limits`` are tokens of a step, the retention interval and the
    longest sequence; ``rules`` are those of reuse, ``vllm`` or ``tree``.
    """

    def __new__(
        cls, groups: KvGroups, limits: tuple[int, int | None, int], capacity_blocks: int, rules: str
    ) -> GroupStore: ...
    @staticmethod
    def with_tier(
        groups: KvGroups,
        limits: tuple[int, int | None, int],
        capacity_blocks: int,
        rules: str,
        tier: tuple[int, str, str],
        prompt_tokens: list[int],
    ) -> GroupStore:
        """Return one above an empty tier: its blocks, its policy, and what goes down.

        ``engine``: what vLLM's connector offers; ``back`` and ``through``: the tree's write policies.
        """

    def brought(self, lease: int) -> Brought: ...
    def blocks_of_move(self, move: int) -> list[int]: ...
    def admit(self, asked: Newcomer, now_ns: int) -> tuple[int | None, int, int]: ...
    def grow(self, lease: int, tokens: tuple[int, int], now_ns: int) -> bool: ...
    def chunk(self, lease: int, computed: int, target: int, tokens: int) -> int: ...
    def most_blocks(self, tokens: int, steps_in_flight: int) -> int: ...
    def by_group(self) -> list[tuple[int, int, int, int]]: ...
    def junctions(self) -> list[tuple[int, int, bool]]: ...
    def free_queue(self) -> list[tuple[int, int] | None]:
        """Return group and key of the free blocks, next to be taken first; None where there is none."""

@final
class RadixStore(MachineStore, LowerTiers, LoadedStore):
    """SGLang's tree as a machine's store, with HiCache's host tier or the GPU alone; see ``cache/store.py``.

    ``rules``: eviction strategy and write policy by SGLang's names, the latter "" for the classic tree, which
    has no host; ``pages``: of the device and of the host; ``lengths``: prompt and total tokens by request;
    ``storage``: pages of the storage below, the fewest that are worth a prefetch, and the tokens that
    prefetches under way may have asked for. StoreError for other names, a page of no tokens and lengths that
    are not the requests', for pages loaded or joined that have no room, and for a prefetch that is not under
    way.
    """

    def __new__(
        cls,
        keys: Keys,
        rules: tuple[str, str],
        page: int,
        pages: tuple[int, int],
        lengths: tuple[Sequence[int], Sequence[int]],
        storage: tuple[int, int, int] | None = None,
    ) -> RadixStore: ...
    def start_prefetch(self, request: int, limit: int, now_ns: int) -> int: ...
    def is_prefetching(self, request: int) -> bool: ...
    def stop_prefetch(self, request: int) -> None: ...
    @property
    def prefetched_blocks(self) -> int: ...

# step times

@final
class StepTable:
    """The integers of a step-time model; bases of steps with a chunk, of those whose chunk has a past (may
    be empty), of decode steps; coefficients in the order pair half, kv decode, kv mixed, sequence, past,
    spread decode, spread mixed, scan, idle, beside; ``longest_fs`` by decode sequences, or empty;
    ``residuals``:
    what these miss by decode sequences and the mean KV of one, the same beside a chunk, and by a chunk's
    tokens and its past, each as counts, tokens and ns for each pair, or empty; ``launch``: ns that launching
    a step of more tokens than the second takes, then ns of one with a chunk of up to as many, of a decode
    step, what a decode sequence adds, the tail behind a launch and a sequence's part."""

    def __new__(
        cls,
        bases_ns: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
        coefficients_fs: list[int],
        least_tokens: tuple[int, int],
        longest_fs: NDArray[np.int64],
        residuals: list[tuple[list[int], list[int], list[int]]],
        launch: list[int],
    ) -> StepTable: ...

# transfers

@final
class Demand:
    """The rate that a channel was asked for (``channels.channel.Demand``)."""

    @property
    def hiding(self) -> NDArray[np.int64]: ...
    @property
    def offered(self) -> NDArray[np.int64]: ...
    def ask(self, size_bytes: int, now_ns: int) -> None: ...
    def hide(self, size_bytes: int, compute_ns: int) -> None: ...

@final
class Channel:
    """A FIFO link, or with a ``timeline`` a link that is served layer by layer.

    StoreError for no bandwidth, for a job without layers, and for one sent from here over the latter.
    """

    def __new__(cls, settings: ChannelSettings, timeline: Timeline | None = None) -> Channel: ...
    @property
    def settings(self) -> ChannelSettings: ...
    @property
    def by_layer(self) -> bool: ...
    @property
    def busy_ns(self) -> int: ...
    @property
    def queued_ns(self) -> int: ...
    @property
    def sent_bytes(self) -> int: ...
    @property
    def jobs(self) -> int: ...
    @property
    def last_call_ns(self) -> int: ...
    @property
    def demand(self) -> Demand: ...
    def wait_ns(self, now_ns: int, pieces: int = ...) -> int: ...
    def transmit(self, size_bytes: int, pieces: int, layers: int, now_ns: int) -> Transmission: ...
    def forward(self, size_bytes: int, pieces: int, layers: int, feed: Transmission) -> Transmission: ...

@final
class Timeline:
    """The events of all channels of a cluster that the core serves layer by layer, in one order."""

    def __new__(cls) -> Timeline: ...

# serving

@final
class Cluster:
    """All replicas of a cluster, their events in one order, and the requests that come to them.

    What is next is told as its time, its priority and its machine (``engine.py``), -1 for a channel's own.
    ``between`` names the channel of (owner, reader), a ``Channel``, where machines read each other or hand
    over over their memory;
    ``apart``: no machine takes note of another one, so each may run ahead of the others; ``timeline`` has
    what happens on channels that are served layer by layer; ``pool`` is what all share, numbered behind them.
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
        window_tokens: int | None,
    ) -> None:
        """Let requests come without a word to Python.

        ``choice``: a rule's name, its number, and the machines that it chooses among, whose numbers are
        ``machines``. By machine: what records arrivals, and the tokens of a prompt and of all of a request
        that it holds. ``window_tokens``: most of a prompt and its answer.

        Errors: StoreError for a rule that the core does not have, and for lists of other lengths.
        """

    def decode_by(
        self,
        choice: tuple[str, float, Fleet],
        machines: Sequence[int],
        holds: Sequence[int],
        between: Callable[[int, int], Sequence[Sequence[Channel] | ChosenLane]],
    ) -> None:
        """Choose who decodes without a word to Python; ``holds``: by place, tokens of a request.

        ``between``: the channels from one machine to another, as ``assign`` takes them. Errors: as ``open``.
        """

    def step_together(self, size: int, dummy_ns: Sequence[int]) -> None:
        """Let each ``size`` machines, one after another, be ranks of an engine that step together.

        ``dummy_ns``: by engine, what a rank without requests takes meanwhile. Errors: StoreError where these
        are not all machines.
        """

    def feed(self, packed: bytes) -> tuple[int, int, int] | None:
        """Tell of requests that will come, in order; return what is next.

        Of each nine 64-bit integers: its number, its time, tokens of its prompt and answer, its session,
        turn, label and priority, and how long after that time its client gives it up, -1 never.

        Errors: ValueError for another length, StoreError where requests do not come natively.
        """

    def take_rejected(self) -> tuple[list[tuple[int, int]], bool]:
        """Return the requests that did not fit the machine that they were sent to since the last call.

        With the number of that machine; and whether all requests that the cluster was told of have come.
        """

    def take_rows(self) -> bytes:
        """Return the rows of all machines' finished requests since the last call."""

    def enqueue(
        self, machine: int, slot: int, now_ns: int
    ) -> tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]:
        """Queue a request that has come to a machine, by its place there; return what ``abort`` does."""

    def prefetch(
        self, machine: int, wanted: tuple[int, int], now_ns: int
    ) -> tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]:
        """Bring up on a machine what a request's prompt of so many tokens would read from further down.

        Return what ``abort`` does.
        """

    def abort(
        self, machine: int, request: int, now_ns: int
    ) -> tuple[tuple[int, int, int] | None, list[tuple[int, int]] | None, bytes | None]:
        """Let a request go whose client has given it up, wherever it is; it was sent to that machine.

        Return what is next, the machines and requests that have left, and rows of events, as ``run`` does.
        """

    def longest(self, of: tuple[int, tuple[int, int, int]], now_ns: int) -> int | None:
        """Return the block past the longest run of blocks below the GPU of one other machine than ``of[0]``.

        ``of[1]``: a request, the first block, the limit.
        """

    def woken(self, machine: int) -> tuple[int, int, int] | None:
        """Note that a machine was told something; return what is next of all."""

    def run(
        self, now_ns: int, until_ns: int
    ) -> tuple[
        tuple[int, int, int] | None,
        tuple[int, tuple[int, int], tuple[int, int, int], tuple[int, int, bool, int]] | None,
        list[tuple[int, int]] | None,
        bytes | None,
    ]:
        """Do what is next, and then what comes before ``until_ns``.

        Return what is next then; a request that is to be decoded somewhere, which ``assign`` answers: the
        machine that computes its prompt, its number and arrival, tokens and session as ``Replica.arrive``
        takes them; machines and the requests that have finished there; rows of events. The last three are
        None where there are none.
        """

    def assign(
        self, machine: int, hops: Sequence[Sequence[Channel] | ChosenLane], expected_tokens: int
    ) -> tuple[int, int, int] | None:
        """Let a machine decode the request in question; return what is next of all.

        ``hops``: between the two, or down, between and up where the memory of both is crossed; of each the
        channels side by side, of which the emptiest is taken.

        Errors: StoreError where no machine was asked for.
        """

@final
class OperatedMachines:
    """Machines that are operated manually, without requests: their transfers' events in one order.

    A machine is its store and its rules (``cache.operations.native.OperationRules``); ``between`` and
    ``timeline`` are those of ``Cluster``. Parts are (tier, first block, past the last, move writing it).
    """

    def __new__(
        cls,
        machines: Sequence[tuple[object, object]],
        between: Callable[[int, int], object] | None = None,
        timeline: Timeline | None = None,
    ) -> OperatedMachines: ...
    def next(self) -> tuple[int, int, int] | None:
        """Return the time, the priority and the machine of what is next, -1 for a channel's own."""

    def run(self, now_ns: int) -> None:
        """Do what is next."""

    def issue(self, machine: int, now_ns: int) -> None:
        """Send what a machine's store has decided."""

    def load(
        self,
        machine: int,
        of: tuple[int, int],
        part: tuple[int, int, int, int],
        freeing_moves: list[int],
        now_ns: int,
    ) -> int | None:
        """Load or join a part for (request, lease) behind moves; return the move, None without room."""

    def longest(
        self, machine: int, wanted: tuple[int, int, int], now_ns: int
    ) -> tuple[int, list[tuple[int, int, int, int]]] | None:
        """Return where the longest run of (request, start, limit) is below a GPU, and its parts there."""

    def fetch(
        self, machine: int, request: int, source: tuple[int, tuple[int, int, int, int]], now_ns: int
    ) -> int | None:
        """Read a part of another machine; return the move, None where it has no room to land."""

    def arrive(
        self, machine: int, of: tuple[int, tuple[int, int], int], sent: Transmission, now_ns: int
    ) -> int | None:
        """Let (move, tiers from and to, blocks) arrive at the times of a transmission."""

    def moves(self, machine: int) -> list[int]:
        """Return the moves of a machine that have not ended."""

    def keep(self, machine: int, id: int) -> tuple[int, int, int, int] | None:
        """Keep the transfer of a move: its number, the tiers from and to, its blocks; None where it ended."""

    def sent(self, machine: int, number: int) -> Transmission | None:
        """Return the times of a kept transfer, None before it is on its channel."""

    def edge_bytes(self, machine: int) -> list[tuple[int, int, int]]:
        """Return by edge the tiers from and to, and the bytes sent."""

@final
class OutputLog:
    """What came out of the machines of a live run: see ``Replica.log_outputs``."""

    def __new__(cls) -> OutputLog: ...
    def take(self) -> list[tuple[int, int, list[int], list[int]]]:
        """Return what came since the last call, in order of time.

        An entry: the time in ns, the machine, the request of each token, requests that finished or aborted.
        """

@final
class Replica:
    """Queue, admission, steps, transfers, milestones and rows of one machine.

    ``batch`` is read as a ``serving.batch_settings.BatchSettings``, ``rules`` as a ``ServingRules`` of
    ``serving.replica.native_rules``.
    What is next to do is told as its time and its phase: 0 for what arrives, 1 for a step boundary.
    Errors: what the store refuses; TypeError for another object than a store; ValueError for a queue order, a
    scheduling or a policy that is not the core's.
    """

    def __new__(cls, store: GpuStore, table: StepTable, batch: object, rules: object) -> Replica: ...
    @staticmethod
    def of_pool(store: Store, rules: object) -> Replica:
        """Return a pool that machines share; ``rules``: a ``PoolRules``."""

    def pool_counts(self) -> tuple[int, int, int, int]:
        """Return of a pool the blocks put there, read there and refused, and the bytes written there."""

    @property
    def pool_hit_blocks(self) -> int:
        """Blocks of first admissions that came from a shared pool."""

    def arrive(
        self, request: int, tokens: tuple[int, int, int], session: tuple[int, int, bool, int], now_ns: int
    ) -> int:
        """Take a request over and return its place; it is not in the queue yet.

        ``tokens``: of prompt and answer, and those of the prompt that the router expected to be computed.
        ``session``: its number or -1, the turn, whether it is called conversational, and the priority.
        """

    def arrive_in_queue(
        self, request: int, tokens: tuple[int, int, int], session: tuple[int, int, bool, int], now_ns: int
    ) -> tuple[int, int] | None:
        """Take a request over as ``arrive`` does and queue it; return what is next."""

    def received(self, slot: int, now_ns: int) -> None:
        """End a request's way from the client to the scheduler."""

    def enqueue(self, slot: int, now_ns: int) -> tuple[int, int] | None:
        """Queue a request that has been looked up; return what is next."""

    def prefetch(self, request: int, tokens: int, now_ns: int) -> tuple[int, int] | None:
        """Bring up what a prompt of so many tokens would read from further down; return what is next."""

    @property
    def prefetched_blocks(self) -> int:
        """Blocks that were brought up ahead of their requests so far."""

    def run(self, until_ns: int) -> tuple[tuple[int, int] | None, list[int] | None, bytes | None]:
        """Do all that is next at one moment and in one phase, and then what comes before ``until_ns``.

        Return what is next then, the requests that have finished, and rows of events (see
        ``metrics.event_log``), the last two None where there are none.
        """

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before a time."""

    def abort(
        self, request: int, now_ns: int
    ) -> tuple[tuple[int, int] | None, list[int] | None, bytes | None]:
        """Let a request go that its client has given up, where it is here; return what ``run`` does."""

    def news(self) -> tuple[tuple[int, int] | None, list[int] | None, bytes | None]:
        """Return what ``run`` does without doing anything."""

    def take_rows(self) -> bytes:
        """Hand over the rows of finished requests: 64-bit integers in the order of their columns."""

    def notify_prefilled(self) -> None:
        """Start keeping whose prompt has been computed."""

    def take_prefilled(self) -> list[tuple[int, int]]:
        """Hand over (request, prompt tokens) of the prompts computed since the last call."""

    def log_outputs(self, log: OutputLog) -> None:
        """Log tokens and closed requests from now on; steps run one by one from then on."""

    @property
    def is_moving(self) -> bool:
        """Whether a copy is on its way between tiers."""

    def log_schedule(self) -> None:
        """Start writing an engine's own schedule down."""

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
        """Return the parts of a ``ScheduleLog``, None where nothing was written."""

    def log_steps(self) -> None: ...
    def take_steps(self) -> list[tuple[int, int, int, int]]: ...
    def counts(self) -> tuple[int, int, int, int]:
        """Return how many requests wait, run and wait for KV, and the tokens generated so far."""

    @property
    def requests(self) -> int: ...
    @property
    def queued_tokens(self) -> int: ...
    @property
    def expected_prefill_tokens(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def edge_bytes(self) -> list[tuple[int, int, int]]:
        """Return (tier from, tier to, bytes sent) of each edge over which anything was."""

    def moved_bytes(self) -> list[tuple[int, int]]:
        """Return by tier the bytes that transfers read from it, and wrote to it; empty for a GPU alone."""

    def take_drained(self) -> bool:
        """Return whether no move was under way at some moment since a request last left.

        Moments before the last call do not count.
        """

    @property
    def open_moves(self) -> int:
        """How many moves are under way."""

    def accepted(self) -> tuple[int, int, list[int]]: ...
    def itl(self) -> tuple[list[int], list[int], int, int, int, int]: ...

def sglang_pass(
    replica: Replica,
    ended: Sequence[tuple[int, int, int, int]],
    running: Sequence[tuple[int, int, int, int]],
    waiting: Sequence[tuple[int, int, int, int]],
    ratio: float,
) -> tuple[int, list[tuple[int, int, int]], list[int], int | None, bool]:
    """Compose one step of prompts of SGLang's scheduler from a given state, on a new replica.

    A request is its number, tokens of its prompt and of its answer, and those of the answer that are out.
    Requests of ``ended`` have come and gone one after another; those of ``running`` run as long as the tree
    has room for the next one; ``ratio`` of each answer is reserved. Returns how many run, the admitted
    requests in order with the first and the past-the-last token that the step computes, the queue after it,
    the prompt that goes on, and whether nobody is admitted before a running request leaves.
    Raises ValueError for another scheduler's replica.
    """

# what plug-ins see

@final
class FetchPlan:
    """A run that could be reused, as a fetch policy sees it.

    Its estimates are by the channels' queues as they are when they are asked for.
    """

    @property
    def parts(self) -> list[Any]:
        """Its parts (``Part``), from the first block on."""

    @property
    def ready(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def pipelining(self) -> bool: ...
    def arrival_ns(self, blocks: int) -> tuple[int, int]:
        """Return when the first and the last layer of the first ``blocks`` should be here, in ns from now."""

    def compute_ns(self, blocks: int) -> int:
        """Return what computing everything after the first ``blocks`` takes, in ns."""

    def done_ns(self, blocks: int) -> int:
        """Return when the prefill should end if the first ``blocks`` are reused, in ns from now."""

# fleet

@final
class Fleet:
    """The stores of all machines, each with the replica that runs ahead of the clock on it.

    StoreError for lists of other lengths.
    """

    def __new__(
        cls,
        stores: Sequence[Store | PoolStore | RadixStore | GroupStore | TieredPoolStore | TokenStore],
        replicas: Sequence[Replica],
    ) -> Fleet: ...
    def look(self, request: int, limit: int, now_ns: int) -> tuple[list[int], list[int]]:
        """Return by machine the leading blocks found and the blocks active on the GPU, as of ``now_ns``.

        Replicas run the iterations that began before; recency does not change.
        """

    def longest(
        self, wanted: tuple[int, int], now_ns: int, loads: Sequence[int] | None, threshold: float
    ) -> int:
        """Return the machine that longest-prefix routing chooses for ``wanted`` = (request, limit).

        ``loads`` by machine; None: the requests of its replica. Of equal machines the one chosen least often
        so far, then the first. The rules of ``router.prefix.equally_long`` and ``router.plain.Ties``.
        """

@final
class Sampled:
    """Native replicas with the number of their tiers, as ``metrics.sampler`` reads them."""

    def __new__(cls, replicas: Sequence[Replica], tiers: Sequence[int]) -> Sampled:
        """Keep the machines; ValueError for unequal lists."""

    def sample(self, now_ns: int) -> bytes:
        """Return 64-bit integers, little-endian: by machine its counts, then of each tier the free, active,
        cached and in-flight blocks. The iterations that began before ``now_ns`` are run first.
        """

# digest

@final
class Digest:
    """A 64-bit rolling hash over records."""

    def __new__(cls) -> Digest: ...
    def record(self, kind: int, time_ns: int, subject: int, value: int) -> None: ...
    @property
    def value(self) -> int: ...

# table: Parquet

@final
class TableWriter:
    """A Parquet file being written a row group at a time; ``metrics.tables.TableFile`` says how."""

    def __new__(cls, path: PathLike[str], columns: Sequence[tuple[str, str, str]]) -> TableWriter:
        """Make the file, of (name, dtype, meaning) of each column; OSError where it cannot be made."""

    def write(self, rows: int, columns: Sequence[object]) -> None:
        """Write one row group: for each column an array of its dtype, or (int32 codes, words) of texts.

        ValueError for a column too many or too few, for other lengths, and for a code without a word.
        """

    def close(self) -> None:
        """Write the file's end; without it no reader takes the file."""

# causes: why prompt tokens were missed

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
    """Return the missed tokens of a policy replay, a row a request, a column a cause.

    Leading blocks of each request: ``blocks`` are named by its ids, ``limits`` may hit, ``known`` an earlier
    prompt showed, ``admitted`` of these the cache had taken in, ``hits`` were found. A row sums to the prompt
    minus its hit. Releases the GIL; raises ``ValueError`` for arrays that do not fit together.
    """

def timed_miss_tokens(
    id_offsets: NDArray[np.int64],
    block_ids: NDArray[np.uint32],
    id_tokens: int,
    block_size_tokens: int,
    continuation: NDArray[np.int32],
    finished: NDArray[np.bool_],
    machine: NDArray[np.int64],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    cached_tokens: NDArray[np.int64],
    admitted_ns: NDArray[np.int64],
    first_token_ns: NDArray[np.int64],
    finish_ns: NDArray[np.int64],
    junction_tokens: NDArray[np.int64],
    junction_is_state: NDArray[np.bool_],
    kept: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the missed tokens of a timed run, a row a request, a column a cause; and idle times.

    The latter are ns since the last use of a request's evicted blocks, the longest of them, −1 without one.
    ``continuation`` is the turn whose ids name an answer, negative for none; ``kept`` whether the cache takes
    all blocks in and keeps them within reach. A finished request's row sums to prompt − cached tokens, the
    others have zeros. Cost: linear in the ids, and a sort. Releases the GIL; raises ``ValueError`` for
    columns that do not fit together.
    """

# exact: real engines' cache managers

@final
class EngineRequests:
    """Requests to replay; all methods release the GIL and start from an empty cache.

    With ``explain`` answers have ``miss_tokens`` (a row a request, a column a cause) and ``evicted_misses``
    (rows of request, the request whose demand evicted, blocks), else None. ``ValueError`` for lengths that
    do not fit, or a policy that does not exist.
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
        """Return hits, forced, taken, inserted, evicted, cached_blocks, unique_keys, free_queue."""
    def vllm_offloading(
        self, capacity_blocks: int, policy: str, cpu_blocks: int, store_threshold: int
    ) -> dict[str, Any]:
        """Return what ``vllm`` does, and loaded, stored, tier_evicted, refused, resident, arc."""
    def vllm_tiering(self, capacity_blocks: int, policy: str, cpu_blocks: int) -> dict[str, Any]:
        """Return what ``vllm_offloading`` does, promoted, given_up and what the secondary tier has, below."""
    def offload(self, policy: str, capacity_blocks: int, store_threshold: int) -> dict[str, Any]:
        """Return hits, stored, evicted, refused and arc: (t1, t2, b1, b2, target) or None."""

@final
class KvGroups:
    """vLLM's KV cache groups over a trace: (kind, tokens a block, reach, keys of units, units a block) each.

    ``align`` is what every hit is a multiple of. StoreError for groups that cannot be.
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
        """Return hits, forced, taken, inserted, evicted, junctions, lost_*, chunks, peak_*, keyed_*, queue_*.

        ``limits`` are tokens of a step, the retention interval and the longest sequence; ``window`` says
        how many requests overlap, and whether each group's own hits are counted.
        """
    def queue_lines(
        self,
        groups: NDArray[np.uint8],
        keys: NDArray[np.uint64],
        hash_block: int,
        trace_block: int,
        names: list[str],
    ) -> str:
        """Return the lines of a free queue, as its digest reads them."""

def replay_sglang(
    requests: EngineRequests,
    tree: str,
    strategy: tuple[str, int, int],
    capacity_tokens: int,
    host: tuple[str, int] | None = None,
    storage: tuple[int | None, int] | None = None,
) -> dict[str, Any]:
    """Replay ``tree``, ``classic`` or ``unified``; return hits, loaded, prefetched and counts by tier.

    ``strategy`` is a name, with tlru's threshold and expected next prompt in tokens; ``host``: the write
    policy and the pages of the host, which the classic tree cannot have. ``storage``: its pages (None:
    without a bound) and the fewest tokens that are prefetched. The counts are forced, evict_calls, evicted_*,
    device_*, host_*, storage_*, leaf_* and heap_bytes.
    """

def replay_lmcache(
    requests: EngineRequests, policy: str, cpu_chunks: int, disk_chunks: int
) -> dict[str, Any]:
    """Replay LMCache's tiers; return hits, from_disk, cpu_hits, stored, short_stores, *_evictions, *_keys."""

def key_lines(keys: NDArray[np.uint64], blocks_per_id: int, names: list[str]) -> str:
    """Return the lines of vLLM's free queue, as its digest reads them; no names: ids are their own."""
