"""The running batch, one step at a time: its shape, its time, its commits (semantics 5; seed 000, 3.3).

A step gives every running request its tokens, oldest first, within the token budget: a prefilling request
the rest of its prompt or a chunk of it, a decoding request one token. Cached tokens cost neither budget nor
compute: only ``num_tokens_requiring_prefill`` are computed (seed 000, 3.3, "KEY CHANGE"). Blocks that the
step fills beyond a request's reservation are reserved at its start, all or nothing. The step takes what the
step-time model gives for its chunks and its decode tokens. At its end full blocks become cached, shareable
blocks with the step's end and its first layer's end as ready times (seed 001,
``switch_active_fullblocks_into_cache``); the partial block stays private. A composed step starts when the
blocks that its requests reserved are free, and stalls for KV that still arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import BlockRange, Times, Wanted
from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.spec.block_store import BlockStore
from kvcache_sim.spec.mover import Mover, Transfer
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.ttft import Loading


class Running(Struct, eq=False):
    """A request in the batch: the tokens that it computes before it decodes, and in all."""

    sequence: SequenceState
    prefill_target: int
    total: int
    #: Blocks that it holds or has reserved.
    blocks: int
    #: Tokens that it computes in the composed step.
    chunk: int = 0

    @property
    def left_to_prefill(self) -> int:
        """Tokens to compute before it decodes."""
        return self.prefill_target - self.sequence.computed_tokens


class Committed(NamedTuple):
    """Blocks that a step has filled and shared."""

    sequence: SequenceState
    blocks: BlockRange


class Ended(NamedTuple):
    """The results of a step: requests with their first and last token, and shared blocks."""

    first_tokens: list[SequenceState]
    finished: list[SequenceState]
    committed: list[Committed]


class Batch:
    """The running requests of one machine, in the order in which they joined."""

    def __init__(
        self, store: BlockStore, replica: ReplicaSettings, cache: CacheSettings, step_time: StepTime
    ) -> None:
        self.store, self.step_time, self.budget = store, step_time, replica.max_num_batched_tokens
        self._block, self._layers = cache.block_size_tokens, cache.num_layers
        self._commits, self._cache_output = cache.enabled, cache.cache_output
        #: The host's time between two steps, in ns.
        self._overhead_ns = replica.step_overhead_ns
        self.running: list[Running] = []
        self.budget_left = self.steps = self.generated_tokens = self.begin_ns = 0
        #: Counts of each time between two tokens of a request, in ns.
        self.token_gaps_ns: Counter[int] = Counter()

    def begin(self, now_ns: int) -> list[int] | None:
        """Distribute the token budget, reserve blocks; return the moves that free them, None if refused."""
        left = self.budget
        short: list[tuple[Running, int]] = []
        for r in self.running:
            r.chunk = min(r.left_to_prefill if r.left_to_prefill > 0 else 1, left)
            left -= r.chunk
            needed = r.sequence.computed_tokens + r.chunk
            if r.chunk and needed > r.blocks * self._block:
                short.append((r, -(-needed // self._block) - r.blocks))
        self.budget_left = left
        wanted = [Wanted(r.sequence.lease, blocks) for r, blocks in short]
        moves = self.store.reserve_many(wanted, now_ns) if wanted else []
        if moves is not None:
            for r, blocks in short:
                r.blocks += blocks
        return moves

    def add(self, s: SequenceState, prefill_target: int, total: int, blocks: int) -> None:
        """Add a request to the composed step; the arguments are the fields of ``Running``."""
        joined = Running(s, prefill_target, total, blocks)
        joined.chunk = min(max(joined.left_to_prefill, 1), self.budget_left)
        self.budget_left -= joined.chunk
        self.running.append(joined)

    def remove_last(self) -> SequenceState:
        """Remove the request that joined last from the composed step."""
        return self.running.pop().sequence

    def step_ns(self) -> int:
        """Return the duration of the composed step in ns."""
        chunks: list[tuple[int, int]] = []
        decoding: list[int] = []
        for r in self.running:
            if r.chunk and r.left_to_prefill > 0:
                chunks.append((r.chunk, r.sequence.computed_tokens))
            elif r.chunk:
                decoding.append(r.sequence.computed_tokens)
        shape = StepBatch(tuple(chunks), len(decoding), sum(decoding), max(decoding, default=0))
        return self.step_time.step(shape) + self._overhead_ns

    def prefills_ending(self) -> list[SequenceState]:
        """Return the requests whose first token the composed step generates."""
        return [
            r.sequence
            for r in self.running
            if r.chunk and r.chunk >= r.left_to_prefill and r.sequence.last_token_ns is None
        ]

    def end(self, now: int, compute_ns: int) -> Ended:
        """End a step that computed for ``compute_ns``: full blocks are shared, tokens are generated."""
        self.steps += 1
        ready = Times(now - compute_ns + compute_ns // self._layers, now)
        ended = Ended([], [], [])
        for r in self.running:
            s = r.sequence
            if not r.chunk:
                continue
            s.computed_tokens += r.chunk
            self._commit(r, ready, ended)
            if s.computed_tokens < r.prefill_target:
                continue
            self.generated_tokens += 1
            if s.last_token_ns is None:
                ended.first_tokens.append(s)
            else:
                self.token_gaps_ns[now - s.last_token_ns] += 1
            s.last_token_ns = now
            if s.computed_tokens == r.total:
                ended.finished.append(s)
        if ended.finished:
            self.running = [r for r in self.running if r.sequence not in ended.finished]
        return ended

    def _commit(self, r: Running, ready: Times, ended: Ended) -> None:
        """Share the blocks that a request has filled."""
        s = r.sequence
        if not self._commits:
            return
        tokens = s.computed_tokens if self._cache_output else min(s.computed_tokens, s.prompt_num_tokens)
        full, depth = tokens // self._block, self.store.depth(s.lease)
        if full > depth:
            self.store.commit(s.lease, full, ready)
            ended.committed.append(Committed(s, BlockRange(depth, full)))


class NextStep:
    """A composed step until it starts: it waits for blocks, then for final arrival times, and stalls.

    ``start(begin_ns, stall_ns)`` starts it.
    """

    def __init__(
        self, mover: Mover, batch: Batch, late: list[Loading], start: Callable[[int, int], None]
    ) -> None:
        self.mover, self.batch, self._start = mover, batch, start
        #: Requests that joined the step while their KV still arrives.
        self.late = late
        #: Moves that free blocks for the step, and transfers whose final times it waits for.
        self._freeing: set[int] = set()
        self._unsettled: set[Transfer] = set()
        self._composed_ns = 0

    @property
    def waits(self) -> bool:
        """True while a composed step has not started."""
        return bool(self._freeing or self._unsettled)

    def prepare(self, moves: Sequence[int], now: int) -> None:
        """Start the composed step once these moves have finished."""
        self._composed_ns = now
        self._freeing = {move for move in moves if move in self.mover.transfers}
        for move in self._freeing:
            self.mover.transfers[move].watchers.append(self._on_freed)
        if not self._freeing:
            self._settle(now)

    def _on_freed(self, transfer: Transfer, complete: bool) -> None:
        if not complete or transfer.move not in self._freeing:
            return
        self._freeing.discard(transfer.move)
        if self._freeing:
            return
        now = self.mover.engine.now_ns
        for s in self._without_token():
            s.fetch_room_ns += now - self._composed_ns
            s.since_ns += now - self._composed_ns
        self._settle(now)

    def _without_token(self) -> list[SequenceState]:
        return [r.sequence for r in self.batch.running if r.sequence.first_token_ns < 0]

    def _settle(self, begin_ns: int) -> None:
        """Wait until the times of all KV that still arrives are final; no arrival is after the step's end."""
        self._composed_ns = begin_ns
        self._unsettled = {transfer for late in self.late for transfer in late.unsettled()}
        for transfer in self._unsettled:
            transfer.watchers.append(self._settled)
        if not self._unsettled:
            self._begin(begin_ns)

    def _settled(self, transfer: Transfer, complete: bool) -> None:
        if complete:
            self._unsettled.discard(transfer)
            if not self._unsettled:
                self._begin(self._composed_ns)

    def _begin(self, begin_ns: int) -> None:
        compute = self.batch.step_ns() if self.late else 0
        alone = begin_ns + compute
        ends = {late.sequence.request: late.late_until(begin_ns, compute) for late in self.late}
        stall = max(ends.values(), default=alone) - alone
        for late in self.late:
            late.charge_stall(ends[late.sequence.request] - alone)
        if self.late:
            for s in self._without_token():
                s.batch_stall_ns += stall - (ends.get(s.request, alone) - alone)
        self.late.clear()
        self._start(begin_ns, stall)
