"""A request at its arrival at a cluster and after it is closed."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.base.values import Struct


class Sent(NamedTuple):
    """A request, and the machine that it was sent to."""

    request: int
    machine: int


class MostTokens(NamedTuple):
    """The most tokens of a prompt, and of a whole request, that a machine holds."""

    prompt: int
    request: int


class Status(Enum):
    """The final status of a request."""

    FINISHED = "FINISHED"
    REJECTED = "REJECTED"
    ABORTED = "ABORTED"
    FAILED = "FAILED"
    TURNED_AWAY = "TURNED_AWAY"


class Arrival(Struct):
    """A request at its arrival at a cluster, as routers see it."""

    request: int
    arrival_ns: int
    prompt_num_tokens: int
    output_tokens: int
    session: int = -1
    turn: int = 0
    is_conversational_turn: bool = False
    #: Prompt tokens that the router expected to be computed; 0 if it made no estimate.
    expected_prefill_tokens: int = 0
    #: Priority in the trace, the smallest first; 0 if the trace has none.
    priority: int = 0
    #: Prompt tokens that repeat earlier turns of its session; -1 if the trace does not state them.
    history_tokens: int = -1

    @property
    def total_kv_tokens(self) -> int:
        """Tokens with KV when it finishes: the last generated token never gets any.

        A request without output tokens ends with its prefill, like a request with a single token.
        """
        return self.prompt_num_tokens + max(self.output_tokens, 1) - 1


class ClosedRequest(Arrival):
    """A finished request of a live run: fields of its row, under seed 000's names if it has them."""

    status: Status = Status.FINISHED
    #: The machine it was routed to, and the machine it was handed over to.
    machine: int = -1
    decode_machine: int = -1
    preemptions: int = 0
    recomputed_tokens: int = 0
    first_token_ns: int = -1
    finish_ns: int = -1
    #: The first admission: the arrival and all parts of TTFT before it.
    admitted_ns: int = -1
    queue_ns: int = 0
    prefill_ns: int = 0
    cached_prefix_length_used: int = 0
    num_tokens_requiring_prefill: int = 0
    #: Cached prefix tokens by source.
    cached_tokens_by_source: tuple[int, ...] = (0,) * len(KV_SOURCES)
