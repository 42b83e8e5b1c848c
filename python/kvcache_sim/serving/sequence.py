"""The state of one request while it is served; the names of seed 000 are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from kvcache_sim.tiers import HOPS, PLACES
from kvcache_sim.units import NS_PER_S
from kvcache_sim.values import dataclass
from kvcache_sim.workload.trace import Trace

_NO_FETCH = (0,) * len(PLACES)
_NO_STALL = (0,) * len(HOPS)


class Status(Enum):
    """Where a request is on its way."""

    WAITING = "WAITING"
    LOADING = "LOADING"
    PREFILLING = "PREFILLING"
    TRANSFERRING = "TRANSFERRING"
    DECODING = "DECODING"
    FINISHED = "FINISHED"
    REJECTED = "REJECTED"
    ABORTED = "ABORTED"
    FAILED = "FAILED"


#: Where a request has no KV that is its own to use.
_WITHOUT_KV = (Status.WAITING, Status.LOADING, Status.REJECTED, Status.ABORTED, Status.FAILED)


class Progress(Protocol):
    """Who computes requests."""

    def computed_tokens(self, request: int) -> int | None:
        """Return how many of a running request's tokens have KV now; None where it does not run."""
        ...


@dataclass(slots=True)
class Arrival:
    """A request as it reaches a cluster: what a router may know of it."""

    request: int
    arrival_ns: int
    prompt_num_tokens: int
    output_tokens: int
    session: int = -1
    turn: int = 0
    is_conversational_turn: bool = False
    #: Prompt tokens that the router expected to be computed; 0 where it did not ask.
    expected_prefill_tokens: int = 0
    #: The trace's own, the smallest first; 0 where it has none.
    priority: int = 0

    @property
    def total_kv_tokens(self) -> int:
        """Tokens with KV when it is done: the last generated token never gets any.

        A request without output tokens ends with its prefill, like one with a single token.
        """
        return self.prompt_num_tokens + max(self.output_tokens, 1) - 1


@dataclass(slots=True)
class SequenceState(Arrival):
    """A request on its way through a cluster. Times are ns; it lives from arrival to finish."""

    status: Status = Status.WAITING
    #: The machine it was routed to, and the one it was handed over to.
    machine: int = -1
    decode_machine: int = -1
    lease: int = -1
    generated_tokens: int = 0
    preemptions: int = 0
    #: Its place in the order in which sequences joined the batch.
    joined: int = -1
    recomputed_tokens: int = 0
    last_token_ns: int | None = None
    first_token_ns: int = -1
    finish_ns: int = -1
    #: When the current part of TTFT began.
    since_ns: int = 0
    client_ns: int = 0
    queue_ns: int = 0
    lookup_ns: int = 0
    fetch_room_ns: int = 0
    #: Exposed waits for KV: by the place it came from, and the same time by the hop that was waited for.
    fetch_by_place_ns: tuple[int, ...] = _NO_FETCH
    stall_by_hop_ns: tuple[int, ...] = _NO_STALL
    prefill_ns: int = 0
    batch_stall_ns: int = 0
    first_decode_ns: int = 0
    #: The hand-over: its wait before the first token, or else before the second; of it, for room there.
    handover_ns: int = 0
    handover_gap_ns: int = 0
    handover_room_ns: int = 0
    handover_blocks: int = 0
    #: Decided at the first admission; index into ``metrics.columns.OUTCOMES``.
    outcome: int = -1
    cached_prefix_length_used: int = 0
    num_tokens_requiring_prefill: int = 0
    #: The cached prefix by the place it came from.
    cached_tokens_by_place: tuple[int, ...] = _NO_FETCH
    #: Prompt tokens with KV while it is in no batch; in one, ``prompt_tokens_fully_processed`` asks that.
    processed_tokens: int = 0
    #: The replica that serves it, which knows how far its prompt is computed.
    progress: Progress | None = None
    prefill_end_time_ns: int = -1
    #: Whether its client has given it up.
    given_up: bool = False
    #: Where the ids of its blocks stand.
    trace: Trace | None = None

    @property
    def prefill_target_tokens(self) -> int:
        """Tokens to compute before it decodes: the prompt and what it had generated before a preemption."""
        return self.prompt_num_tokens + self.generated_tokens

    @classmethod
    def of(cls, arrival: Arrival, trace: Trace) -> SequenceState:
        """Return the state of a request of a trace that has just arrived."""
        return cls(
            arrival.request,
            arrival.arrival_ns,
            arrival.prompt_num_tokens,
            arrival.output_tokens,
            arrival.session,
            arrival.turn,
            arrival.is_conversational_turn,
            arrival.expected_prefill_tokens,
            arrival.priority,
            trace=trace,
        )

    @property
    def prompt_tokens_fully_processed(self) -> int:
        """Seed 000's name: prompt tokens that have KV now, cached ones included; grows chunk by chunk.

        0 while it waits: before its admission, while its cached prefix is loaded, and after a preemption.
        """
        if self.status is Status.PREFILLING and self.progress is not None:
            computed = self.progress.computed_tokens(self.request)
            if computed is not None:
                return min(computed, self.prompt_num_tokens)
        return 0 if self.status in _WITHOUT_KV else self.processed_tokens

    @property
    def kv_block_ids_for_prompt(self) -> Sequence[int]:
        """Seed 000's name: the trace's ids of the blocks that hold ``prompt_tokens_fully_processed``."""
        if self.trace is None:
            return ()
        start, end = self.trace.id_offsets[self.request : self.request + 2].tolist()
        blocks = -(-self.prompt_tokens_fully_processed // self.trace.block_size)
        return tuple(self.trace.block_ids[start : min(start + blocks, end)].tolist())

    @property
    def prefill_end_time_sim(self) -> float:
        """Seed 000's name: the end of the prefill in seconds, -1.0 before it."""
        return self.prefill_end_time_ns / NS_PER_S if self.prefill_end_time_ns >= 0 else -1.0

    def charge_hops(self, parts: Mapping[str, int]) -> None:
        """Add an exposed wait for KV, in ns by the hop that was waited for."""
        self.stall_by_hop_ns = tuple(
            ns + parts.get(hop, 0) for ns, hop in zip(self.stall_by_hop_ns, HOPS, strict=True)
        )

    def charge_fetch(self, place: int, ns: int) -> None:
        """Add an exposed wait for KV that came from a place."""
        by_place = list(self.fetch_by_place_ns)
        by_place[place] += ns
        self.fetch_by_place_ns = tuple(by_place)

    @property
    def fetch_ns(self) -> int:
        """All waiting for KV or room so far."""
        return self.fetch_room_ns + sum(self.fetch_by_place_ns)
