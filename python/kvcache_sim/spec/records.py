"""Records: the milestones of a request, its row, the events of seed 000, and the digest of the run.

Each milestone charges the time since the last one to one part of TTFT, so the parts sum to it exactly (I8):
client, queue, lookup, fetch, prefill, first decode step, hand-over. A closed request has one row: its
machines, its outcome, its times and their parts, its tokens by source (seed 000, 5). Two events are always
logged, under seed 000's names: ``log_prefix_cache_event`` at the outcome of a lookup, with the cached length
and the tokens left to prefill, and ``log_prefill_start`` with the tokens really prefilled. Every milestone,
eviction and transfer enters its machine's rolling hash: equal hashes mean equal actions and times (I11).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvcache_sim.base.tiers import HOPS, KV_SOURCES, hop_name
from kvcache_sim.spec.block_store import BlockStore
from kvcache_sim.spec.request import Load, SequenceState, Status

# Kinds of record in the digest.
ARRIVE, ADMIT, FIRST_TOKEN, PREEMPT, EVICT, TRANSFER, FINISH, HANDOVER = range(1, 9)

_MULTIPLIER = 0x9E37_79B9_7F4A_7C15
_MASK = (1 << 64) - 1
_START = 0x6B76_7369_6D00_0001


class RollingDigest:
    """A 64-bit hash over records: ``h = mix((h ^ word) · K)`` for each of their words, modulo 2⁶⁴."""

    def __init__(self) -> None:
        self.value = _START

    def record(self, kind: int, time_ns: int, subject: int, value: int) -> None:
        """Add one record of a kind: its time, and two integers."""
        for word in (kind, time_ns, subject, value):
            self._add(word)

    def evicted(self, tier: int, key: int, now_ns: int) -> None:
        """Add the eviction of a block, by its key."""
        self._add((EVICT | tier << 8 | now_ns << 16) & _MASK)
        self._add(key)

    def _add(self, word: int) -> None:
        h = ((self.value ^ word) * _MULTIPLIER) & _MASK
        self.value = h ^ (h >> 32)


class Event(NamedTuple):
    """A logged event; ``outcome`` is that of a ``prefix_cache_event``, -1 for a ``prefill_start``."""

    kind: str
    now_ns: int
    machine: int
    request: int
    outcome: int
    #: The cached length, or the tokens prefilled.
    tokens: int
    left_tokens: int


class CacheEvent(NamedTuple):
    """The result of a lookup: the outcome, the cached length, and the tokens left to prefill."""

    outcome: int
    cached_tokens: int
    left_tokens: int


class Records:
    """Hands the rows and events of a run to ``take_row`` and ``take_event``."""

    def __init__(
        self, take_row: Callable[[dict[str, int]], None], take_event: Callable[[Event], None]
    ) -> None:
        self._take_row, self._take_event = take_row, take_event

    def log_prefix_cache_event(self, s: SequenceState, machine: int, now_ns: int, event: CacheEvent) -> None:
        """Log the result of a lookup."""
        outcome, cached, left = event
        self._take_event(Event("prefix_cache_event", now_ns, machine, s.request, outcome, cached, left))

    def log_prefill_start(self, s: SequenceState, machine: int, now_ns: int, tokens: int) -> None:
        """Log that the prefill of ``tokens`` missed tokens starts."""
        self._take_event(Event("prefill_start", now_ns, machine, s.request, -1, tokens, 0))

    def close(self, s: SequenceState) -> None:
        """Keep the row of a finished or rejected request."""
        self._take_row(row_of(s))


#: Columns of a row that are fields of a request of the same name; a part of TTFT is one of them.
ROW_FIELDS = (
    *("request", "machine", "decode_machine", "session", "turn", "arrival_ns", "client_ns", "queue_ns"),
    *("lookup_ns", "fetch_ns", "fetch_room_ns", "prefill_ns", "batch_stall_ns", "first_decode_ns"),
    *("handover_ns", "handover_gap_ns", "handover_room_ns", "first_token_ns", "finish_ns", "output_tokens"),
    *("cached_prefix_length_used", "handover_blocks", "recomputed_tokens", "preemptions"),
)


def row_of(s: SequenceState) -> dict[str, int]:
    """Return the row of a closed request by column; times in ns, counts in tokens or blocks."""
    row: dict[str, int] = {name: getattr(s, name) for name in ROW_FIELDS}
    row["is_conversational_turn"] = int(s.is_conversational_turn)
    row["status"], row["outcome"] = s.status.value, max(s.outcome, 0)
    row["input_tokens"] = s.prompt_num_tokens
    row["num_tokens_actually_prefilled"] = s.num_tokens_requiring_prefill
    for level, source in enumerate(KV_SOURCES):
        row[f"cached_{source}_tokens"] = s.cached_tokens_by_source[level]
        row[f"fetch_{source}_ns"] = s.fetch_by_source_ns[level]
    return row | {f"stall_{hop_name(hop)}_ns": s.stall_by_hop_ns[hop] for hop in HOPS}


class Milestones:
    """The milestones of one machine's requests: updates their state, its load, its digest, the records.

    ``when_closed`` is called with each closed request. ``now`` is the time in ns.
    """

    def __init__(
        self, machine: int, store: BlockStore, records: Records, when_closed: Callable[[SequenceState], None]
    ) -> None:
        self.machine, self.store, self.records = machine, store, records
        self.load = Load()
        self._when_closed = when_closed

    def arrived(self, s: SequenceState, now: int) -> None:
        """Count a request that was sent here."""
        s.machine = self.machine
        s.since_ns = now
        self.load.requests += 1
        self.load.queued_tokens += s.prompt_num_tokens

    def received(self, s: SequenceState, now: int) -> None:
        """End the client's part of TTFT: the scheduler has the request."""
        s.client_ns, s.since_ns = now - s.since_ns, now

    def looked_up(self, s: SequenceState, now: int) -> None:
        """End the lookup; the request queues from now on."""
        s.lookup_ns, s.since_ns = now - s.since_ns, now

    def left_queue(self, s: SequenceState, now: int) -> None:
        """Charge the time since the last milestone to the queue, unless the first token is out."""
        if s.first_token_ns < 0:
            s.queue_ns += now - s.since_ns
            s.since_ns = now

    def admitted(self, s: SequenceState, reused_blocks: int, now: int) -> None:
        """End the wait in the queue."""
        self.left_queue(s, now)
        self.store.note(ADMIT, now, s.request, reused_blocks)

    def prefilled(self, s: SequenceState, now: int) -> None:
        """End the prefill, or the first decode step of a request without one."""
        if s.status is Status.PREFILLING:
            s.prefill_ns += now - s.since_ns
            s.prefill_end_time_ns = now
            s.status = Status.DECODING
        else:
            s.first_decode_ns += now - s.since_ns
        s.since_ns = now
        self.load.queued_tokens -= s.prompt_num_tokens

    def first_token(self, s: SequenceState, now: int) -> None:
        """Record the first token."""
        s.first_token_ns = now
        self.store.note(FIRST_TOKEN, now, s.request, 0)

    def taken_over(self, s: SequenceState) -> None:
        """Count a request that another machine hands over; its KV is on this machine until it finishes."""
        s.decode_machine = self.machine
        self.load.requests += 1
        self.load.queued_tokens += s.prompt_num_tokens

    def handed_over(self, s: SequenceState, now: int, delays_token: bool) -> None:
        """End a hand-over: the KV is here."""
        waited = now - s.since_ns
        self.store.note(HANDOVER, now, s.request, s.handover_blocks)
        if delays_token:
            s.handover_ns = waited
            self.first_token(s, now)
        else:
            s.handover_gap_ns = waited
        s.status = Status.DECODING

    def preempted(self, s: SequenceState, now: int) -> None:
        """Send a running request back to the queue: its KV is lost."""
        if s.first_token_ns >= 0:
            # The last generated token never had KV, so tokens out = KV - prompt + 1 once decoding.
            s.generated_tokens = max(s.generated_tokens, s.computed_tokens - s.prompt_num_tokens + 1)
        else:
            s.prefill_ns += now - s.since_ns
            s.since_ns = now
        s.recomputed_tokens += s.computed_tokens
        s.preemptions += 1
        s.status = Status.WAITING
        self.store.note(PREEMPT, now, s.request, s.computed_tokens)

    def finished(self, s: SequenceState, now: int) -> None:
        """End a request whose last token is out."""
        s.finish_ns = now
        s.status = Status.FINISHED
        self.store.note(FINISH, now, s.request, s.output_tokens)
        self.load.requests -= 1
        if s.decode_machine == self.machine:
            self.load.queued_tokens -= s.prompt_num_tokens
        self._when_closed(s)
