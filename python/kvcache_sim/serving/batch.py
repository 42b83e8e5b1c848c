"""The running batch, one iteration at a time: the rules to read. The native batch runs them in stretches.

A step gives every running sequence its tokens, oldest first, within the token budget; a decoding sequence
gets one. Blocks that decoding needs are reserved at the step's start, all or nothing; full blocks are
committed at its end, when its tokens come out.
"""

from __future__ import annotations

from kvcache_sim.cache.group_store import GroupStore
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.serving.batch_contract import Ended
from kvcache_sim.serving.batch_settings import BatchSettings
from kvcache_sim.serving.gaps import TokenGaps
from kvcache_sim.serving.speculation import Accepted
from kvcache_sim.values import dataclass


@dataclass(slots=True, eq=False)
class _Running:
    id: int
    lease: int
    computed: int
    prefill_target: int
    total: int
    prompt: int
    blocks: int
    last_token_ns: int | None
    chunk: int = 0

    @property
    def prefilling(self) -> bool:
        return self.computed < self.prefill_target

    @property
    def drafts(self) -> int:
        return 0 if self.prefilling else max(self.chunk - 1, 0)


class SteppedBatch:
    """The running batch, one iteration at a time, with any step-time model."""

    def __init__(
        self, settings: BatchSettings, step_time: StepTime, groups: GroupStore | None = None
    ) -> None:
        self.settings = settings
        #: The store where it is a pool of several cache groups.
        self._groups = groups
        self.step_time = step_time
        self.running: list[_Running] = []
        self.budget_left = 0
        self.steps = 0
        self.generated_tokens = 0
        self.begin_ns = 0
        self._end_ns = 0
        self._computing_ns = 0
        #: Duration of the composed step, once someone has asked.
        self._step_ns: int | None = None
        self._gaps = TokenGaps()
        self._accepted = Accepted()
        self._log: list[tuple[int, int, int, int]] | None = None
        self._later_tokens: list[int] | None = None

    def __len__(self) -> int:
        """Return the number of running sequences."""
        return len(self.running)

    def begin(self, store: GpuStore, now_ns: int) -> list[int] | None:
        """Share out the budget and reserve blocks; None when refused, else the moves to wait for."""
        left = self.settings.max_num_batched_tokens
        groups, rules = self._groups, self.settings.speculation
        self._step_ns = None
        for s in self.running:
            if rules is None and s.computed >= s.prefill_target:  # most of them, most of the time
                s.chunk = 1 if left > 0 else left
                left -= s.chunk
                continue
            s.chunk = min(self._wanted(s), left)
            if groups is not None and s.prefilling:
                if s.computed < s.blocks:  # it joined late, with less of its room than it was admitted with
                    s.chunk = min(s.chunk, s.blocks - s.computed)
                s.chunk = groups.chunk(s.lease, s.computed, s.prefill_target, s.chunk)
            left -= s.chunk
        self.budget_left = left
        moves = self._reserve(store, now_ns)
        if moves is not None and self.settings.commit_at_begin:
            for s in self.running:
                if s.chunk:
                    self._commit(s, s.computed + s.chunk - s.drafts, store, (now_ns, now_ns))
        return moves

    def _reserve(self, store: GpuStore, now_ns: int) -> list[int] | None:
        """Reserve what the composed step needs, all or nothing."""
        if self.settings.room_by_step:
            return self._reserve_tokens(store, now_ns)
        block = self.settings.block_size_tokens
        short = [s for s in self.running if s.chunk and s.computed + s.chunk > s.blocks * block]
        lacking = {s.id: -(-(s.computed + s.chunk) // block) - s.blocks for s in short}
        asking = self.running if self.settings.asks_every_step else short
        wanted = [(s.lease, lacking.get(s.id, 0)) for s in asking if self._asks(s, lacking)]
        moves = store.reserve_many(wanted, now_ns) if wanted else []
        if moves is None:
            return None
        for s in short:
            s.blocks += lacking[s.id]
        return moves

    def _reserve_tokens(self, store: GpuStore, now_ns: int) -> list[int] | None:
        asking = [s for s in self.running if s.chunk and s.computed + s.chunk > s.blocks]
        if self._groups is not None and self.settings.speculation is not None:
            return self._grow(self._groups, asking, now_ns)
        wanted = [(s.lease, s.computed + s.chunk - s.blocks) for s in asking]
        moves = store.reserve_many(wanted, now_ns) if wanted else []
        if moves is not None:
            for s in asking:
                s.blocks = s.computed + s.chunk
        return moves

    def _grow(self, groups: GroupStore, asking: list[_Running], now_ns: int) -> list[int] | None:
        """Take room request by request: where drafts were rejected, not all that has room is computed."""
        for s in asking:
            end = s.computed + s.chunk
            if not groups.grow(s.lease, (s.computed, end), now_ns):
                return None
            s.blocks = end
        return []

    def _wanted(self, s: _Running) -> int:
        """Return the tokens that a sequence's next step would take."""
        if s.prefilling:
            return s.prefill_target - s.computed
        rules = self.settings.speculation
        return 1 if rules is None or s.last_token_ns is None else 1 + len(rules.thresholds)

    def _asks(self, s: _Running, lacking: dict[int, int]) -> bool:
        decoding = s.chunk > 0 and not s.prefilling
        return s.id in lacking or (self.settings.asks_every_step and decoding)

    def add(
        self, id: int, lease: int, tokens: tuple[int, int, int, int, int], last_token_ns: int | None
    ) -> int:
        """Add a sequence to the composed step; return its chunk."""
        s = _Running(id, lease, *tokens, last_token_ns)
        s.chunk = min(self._wanted(s), self.budget_left)
        if self.settings.room_by_step:
            s.chunk = min(s.chunk, s.blocks - s.computed)
            if self._groups is not None and s.prefilling:
                s.chunk = self._groups.chunk(lease, s.computed, s.prefill_target, s.chunk)
        self.budget_left -= s.chunk
        self._step_ns = None
        self.running.append(s)
        return s.chunk

    def commit_last(self, store: GpuStore) -> None:
        """Share what the last added sequence will fill, where keys exist from scheduling on."""
        if self.settings.commit_at_begin:
            s = self.running[-1]
            self._commit(s, s.computed + s.chunk - s.drafts, store, None)

    def pop_last(self) -> tuple[int, int, int | None] | None:
        """Take the last sequence out."""
        if not self.running:
            return None
        self._step_ns = None
        s = self.running.pop()
        return s.id, s.computed, s.last_token_ns

    def take_out(self, id: int) -> tuple[int, int, int | None] | None:
        """Take a sequence out between two steps."""
        found = next((s for s in self.running if s.id == id), None)
        if found is None:
            return None
        self._step_ns = None
        self.running.remove(found)
        return found.id, found.computed, found.last_token_ns

    def computed_tokens(self, id: int) -> int | None:
        """Return how many tokens of a running sequence have KV; None for one that does not run."""
        return next((s.computed for s in self.running if s.id == id), None)

    def step_ns(self) -> int:
        """Return the duration of the composed step."""
        if self._step_ns is None:
            duration = self.step_time.step(self._shape()) + self.settings.step_overhead_ns
            rules = self.settings.speculation
            drafted = rules is not None and any(s.drafts for s in self.running)
            drafted_ns = rules.draft_ns if drafted and rules else 0
            self._step_ns = max(duration, self.settings.least_step_ns) + drafted_ns
        return self._step_ns

    def first_tokens_due(self) -> list[int]:
        """Return whose first token comes with the composed step."""
        return [
            s.id
            for s in self.running
            if s.chunk and s.computed + s.chunk >= s.prefill_target and s.last_token_ns is None
        ]

    def _shape(self) -> StepBatch:
        decoding: list[int] = []
        chunks: list[tuple[int, int]] = []
        tokens = 0
        for s in self.running:
            if s.chunk and s.computed < s.prefill_target:
                chunks.append((s.chunk, s.computed))
            elif s.chunk:  # the KV is read once for all the tokens of a sequence that are checked
                decoding.append(s.computed)
                tokens += s.chunk
        return StepBatch(tuple(chunks), tokens, sum(decoding), max(decoding, default=0))

    def start(self, store: GpuStore, now_ns: int, stall_ns: int) -> int:
        """Start the composed step; return its end."""
        self.begin_ns = now_ns
        self._computing_ns = self.step_ns()
        self._end_ns = now_ns + self._computing_ns + stall_ns
        return self._end_ns

    def advance(self, store: GpuStore, now_ns: int) -> int:
        """Return the end of the current iteration: nothing runs ahead here."""
        return self._end_ns

    def interrupt(self, store: GpuStore, now_ns: int) -> int:
        """Return the end of the current iteration."""
        return self._end_ns

    def end(self, store: GpuStore) -> Ended:
        """End the iteration: KV is there, full blocks are shared, tokens come out."""
        now = self._end_ns
        self.steps += 1
        if self._log is not None:
            shape = self._shape()
            new = sum(chunk for chunk, _ in shape.prefill_chunks)
            self._log.append((self.begin_ns, now - self.begin_ns, new, shape.decode_sequences))
        ready = (now - self._computing_ns + self._computing_ns // self.settings.num_layers, now)
        ended: Ended = ([], [], [])
        block = self.settings.block_size_tokens
        for s in self.running:
            if not s.chunk:
                continue
            whole = s.computed < s.prefill_target
            drafts = 0 if whole else s.chunk - 1
            tokens = self._brought(s) if drafts else s.chunk
            s.computed += tokens
            if whole or s.computed % block < tokens:  # a decoded token seldom fills a block
                ended[2].extend(self._commit(s, s.computed, store, ready))
            if s.computed < s.prefill_target or s.computed > s.total:
                continue
            self.generated_tokens += tokens if drafts else 1
            if s.last_token_ns is None:
                ended[0].append(s.id)
            else:
                self._gaps.add(now - s.last_token_ns)
                if self._later_tokens is not None:
                    self._later_tokens += [s.id] * (tokens if drafts else 1)
            s.last_token_ns = now
            if s.computed == s.total:
                ended[1].append(s.id)
        if ended[1] or self.settings.late_ends:
            late = set(ended[1]) if self.settings.late_ends else set()
            self.running = [s for s in self.running if s.prefilling or s.computed < s.total or s.id in late]
        return ended

    def _brought(self, s: _Running) -> int:
        """Return the tokens by which the ended step brings a sequence forward."""
        rules = self.settings.speculation
        if rules is None or not s.drafts:
            return s.chunk
        accepted = rules.accepted(s.id, s.computed, s.drafts)
        self._accepted.count(s.drafts, accepted)
        return min(1 + accepted, s.total - s.computed)

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return decode steps with drafts, tokens drafted, and tokens accepted by position."""
        return self._accepted.as_tuple()

    def _commit(
        self, s: _Running, computed: int, store: GpuStore, ready: tuple[int, int] | None
    ) -> list[tuple[int, int, int]]:
        settings = self.settings
        if not settings.cache_enabled or computed > s.total:
            return []
        tokens = computed if settings.cache_output else min(computed, s.prompt)
        full, depth = tokens // settings.block_size_tokens, store.depth(s.lease)
        if full > depth:
            store.commit(s.lease, full, ready)
            if settings.track_commits:
                return [(s.id, depth, full)]
        return []

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens, bucketed as the native core does."""
        return self._gaps.histogram()

    def log_later_tokens(self) -> None:
        """Start keeping whose tokens come."""
        self._later_tokens = []

    def take_later_tokens(self) -> list[int]:
        """Return whose tokens after the first one came since the last call, in batch order."""
        taken, self._later_tokens = self._later_tokens or [], [] if self._later_tokens is not None else None
        return taken

    def log_steps(self) -> None:
        """Start keeping every iteration."""
        self._log = []

    def take_steps(self) -> list[tuple[int, int, int, int]]:
        """Return the iterations since the last call."""
        taken, self._log = self._log or [], [] if self._log is not None else None
        return taken
