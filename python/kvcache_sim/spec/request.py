"""The state of a request, under seed 000's names (seed 000, 3.1; semantics 1).

A request arrives, waits, is admitted, loads blocks below the GPU, prefills, decodes and finishes; after a
preemption it waits again. Its times are integer ns; seed 000's float seconds are views of them.
``prompt_tokens_fully_processed`` grows chunk by chunk and is 0 while the request waits or loads.
``prefill_end_time_sim`` is the end of the last chunk, or, if no token is left to prefill, the time of that
decision (seed 000, 3.3). At most floor((n - 1) / block size) blocks of n tokens hit, so that a step with
logits exists; with ``skip-prefill`` all whole blocks may. Each machine counts the requests and tokens sent to
it that are not finished or computed yet: its load, which routers read (semantics 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from kvcache_sim.base.tiers import HOPS, KV_SOURCES
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.trace import Trace


class Status(Enum):
    """A stage of a request's lifecycle; the value of a closed request's status is its code in a row."""

    FINISHED = 0
    REJECTED = 1
    WAITING = -1
    LOADING = -2
    PREFILLING = -3
    TRANSFERRING = -4
    DECODING = -5


class SequenceState:
    """One request while it is served; seed 000's ``SequenceState``."""

    def __init__(self, trace: Trace, request: int, arrival_ns: int) -> None:
        self.trace, self.request, self.arrival_ns = trace, request, arrival_ns
        self.prompt_num_tokens = int(trace.input_tokens[request])
        self.output_tokens = int(trace.output_tokens[request])
        self.session, self.turn = int(trace.session[request]), int(trace.turn[request])
        self.is_conversational_turn = bool(trace.is_conversational_turn[request])
        self.priority = int(trace.priority[request]) if len(trace.priority) else 0
        self.history_tokens = int(trace.history_tokens[request]) if len(trace.history_tokens) else -1
        self.status = Status.WAITING
        #: The machine it was routed to, and the machine it was handed over to.
        self.machine = self.decode_machine = -1
        #: Its lease in the store; -1: none.
        self.lease = -1
        #: Tokens with KV while it runs, of prompt and answer.
        self.computed_tokens = 0
        #: Tokens generated before a preemption; preemptions, and tokens computed again after these.
        self.generated_tokens = self.preemptions = self.recomputed_tokens = 0
        self.last_token_ns: int | None = None
        self.first_token_ns = self.finish_ns = -1
        #: Start of the current part of TTFT, and the parts.
        self.since_ns = 0
        self.client_ns = self.queue_ns = self.lookup_ns = 0
        self.fetch_room_ns = 0
        self.fetch_by_source_ns = [0] * len(KV_SOURCES)
        self.stall_by_hop_ns = dict.fromkeys(HOPS, 0)
        self.prefill_ns = self.batch_stall_ns = self.first_decode_ns = 0
        self.handover_ns = self.handover_gap_ns = self.handover_room_ns = 0
        self.handover_blocks = 0
        #: Decided at the first admission: one of the five outcomes.
        self.outcome = -1
        self.cached_prefix_length_used = self.num_tokens_requiring_prefill = 0
        self.cached_tokens_by_source = [0] * len(KV_SOURCES)
        self.prefill_end_time_ns = -1

    @property
    def session_id(self) -> str | None:
        """The name of its session, None without one."""
        return self.trace.session_id(self.session)

    def continues(self, total: int) -> bool:
        """Return True if it continues a session of ``total`` tokens, or the part that a window left."""
        return self.prompt_num_tokens > total or 0 < self.history_tokens < total

    @property
    def total_kv_tokens(self) -> int:
        """Tokens with KV when it finishes: the last generated token never gets any."""
        return self.prompt_num_tokens + max(self.output_tokens, 1) - 1

    @property
    def prefill_target_tokens(self) -> int:
        """Tokens to compute before it decodes: the prompt, and tokens generated before a preemption."""
        return self.prompt_num_tokens + self.generated_tokens

    @property
    def fetch_ns(self) -> int:
        """All waiting for KV or free blocks before the first token."""
        return self.fetch_room_ns + sum(self.fetch_by_source_ns)

    @property
    def prompt_tokens_fully_processed(self) -> int:
        """Prompt tokens that have KV now, cached ones included."""
        if self.status in (Status.WAITING, Status.LOADING, Status.REJECTED):
            return 0
        return min(self.computed_tokens, self.prompt_num_tokens)

    @property
    def kv_block_ids_for_prompt(self) -> Sequence[int]:
        """The trace's ids of the blocks that hold ``prompt_tokens_fully_processed``."""
        start, end = self.trace.id_offsets[self.request : self.request + 2].tolist()
        blocks = -(-self.prompt_tokens_fully_processed // self.trace.block_size)
        return tuple(self.trace.block_ids[start : min(start + blocks, end)].tolist())

    @property
    def prefill_end_time_sim(self) -> float:
        """The end of the prefill in seconds, -1.0 before it."""
        return self.prefill_end_time_ns / NS_PER_S if self.prefill_end_time_ns >= 0 else -1.0


class OrderedLoad(NamedTuple):
    """A move that loads KV, and the source that it comes from."""

    move: int
    source: int


class HeldPart(NamedTuple):
    """The blocks before ``end`` of a found run, held on their tier until the move ``hold`` is finished."""

    end: int
    hold: int


class Admission(Struct):
    """The blocks that an admitted request holds, and the moves that it waits for."""

    lease: int
    reused_blocks: int
    total_blocks: int
    #: Reused blocks by source.
    from_source: list[int]
    #: Moves that free its blocks, and moves that load its KV.
    freeing_moves: list[int]
    loads: list[OrderedLoad]
    #: The block after the last one that waits for space to be staged, 0 if none does; its sources' holds.
    rest_end: int = 0
    held: list[HeldPart] = []


class Load(Struct):
    """The unfinished work of a machine, as routers read it."""

    #: Unfinished requests.
    requests: int = 0
    #: Prompt tokens that are not computed yet.
    queued_tokens: int = 0
