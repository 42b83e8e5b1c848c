"""Every column of a finished run, with its type, unit and meaning: the contract of the run directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvcache_sim.base.tiers import COMPUTE, HOPS, KV_SOURCES, REMOTE, TIERS, hop_name
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.replay.miss_causes import MissCause, reported_by


class Column(NamedTuple):
    """One column: numpy dtype name (``str`` for a dictionary-coded text) and meaning."""

    dtype: str
    meaning: str


#: The five outcomes of seed 000 section 5; a row stores the index.
OUTCOMES = (
    "CONVERSATIONAL_HIT",
    "CROSS_REQUEST_HIT",
    "MISS_FULL",
    "FULL_HIT_NO_PREFILL_NEEDED",
    "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT",
)

#: Final status of a request; a row of ``requests`` stores the index.
STATUSES = ("finished", "rejected", "aborted", "failed", "turned_away")

#: The parts of TTFT, in the order of a request's lifecycle.
TTFT_PARTS = tuple(part.name for part in ROWS)

#: Parts of ``fetch``, summing to it exactly: waiting for free blocks, and the exposed stall of each hop.
FETCH_PARTS = ("fetch_room", *(f"stall_{hop_name(hop)}" for hop in HOPS))

#: Names of the sources of KV, for the meanings of columns.
_WHENCE = {source: f"this machine's {source}" for source in TIERS} | {KV_SOURCES[REMOTE]: "another machine"}

#: By part of TTFT its detail columns.
_DETAILS: dict[str, dict[str, Column]] = {
    "fetch": {
        "fetch_room_ns": Column("int64", "waiting until evicted blocks were written down and free"),
        **{
            f"fetch_{source}_ns": Column("int64", f"exposed wait for KV from {_WHENCE[source]}")
            for source in KV_SOURCES[COMPUTE + 1 :]
        },
        **{
            f"stall_{hop_name(hop)}_ns": Column(
                "int64", f"the same waits by hop: until KV had come over {hop}, here or on another machine"
            )
            for hop in HOPS
        },
    },
    "prefill": {
        "batch_stall_ns": Column("int64", "part of prefill: the batch waited for another request's KV")
    },
    "handover": {
        "handover_gap_ns": Column(
            "int64", "the same where the first token does not wait: it lies before the second"
        ),
        "handover_room_ns": Column("int64", "of the hand-over, waiting for a slot and free blocks there"),
    },
}


def _ttft_columns() -> Iterator[tuple[str, Column]]:
    for part in ROWS:
        yield part.column, Column("int64", part.meaning)
        yield from _DETAILS.get(part.name, {}).items()


#: requests.parquet: one row per request, in file order. Times are ns since the start of the simulation.
REQUEST_COLUMNS: dict[str, Column] = {
    "request": Column("int32", "index in the trace, from 0"),
    "machine": Column("int16", "machine it was routed to, -1 when rejected before routing"),
    "decode_machine": Column("int16", "machine it was handed over to after its prompt, else -1"),
    "session": Column("int32", "index of the session, -1 without one"),
    "turn": Column("int32", "turn within the session, from 0"),
    "is_conversational_turn": Column("bool", "label of the workload; outcomes never read it"),
    "status": Column("uint8", "index into STATUSES"),
    "outcome": Column("uint8", "index into OUTCOMES: decided at the first admission"),
    "arrival_ns": Column("int64", "arrival: the client sends it"),
    **dict(_ttft_columns()),
    "first_token_ns": Column("int64", "time of the first token, -1 without one"),
    "finish_ns": Column("int64", "time of the last token, -1 when rejected or aborted"),
    "input_tokens": Column("int64", "prompt tokens, history included"),
    "output_tokens": Column("int64", "generated tokens"),
    "cached_prefix_length_used": Column("int64", "prompt tokens served from any tier at the first admission"),
    **{
        f"cached_{source}_tokens": Column("int64", f"of these, from {_WHENCE[source]}")
        for source in KV_SOURCES
    },
    "num_tokens_actually_prefilled": Column("int64", "prompt tokens computed at the first admission"),
    "handover_blocks": Column("int64", "blocks handed over: those of its prompt that were not there"),
    "recomputed_tokens": Column("int64", "tokens computed again after preemptions"),
    "preemptions": Column("int32", "how often it was preempted"),
}

#: series.parquet: samples in long form. Names: ``queue``, ``running``, ``loading`` (sequences);
#: ``{tier}.{free,held,cached,in_flight}`` (blocks); ``input_tokens``, ``cached_tokens``,
#: ``output_tokens`` (cumulative); ``channel.{name}.{busy_ns,queued_ns,bytes}`` (cumulative, machine -1).
SERIES_COLUMNS: dict[str, Column] = {
    "time_ns": Column("int64", "sampling time"),
    "machine": Column("int16", "machine, -1 for channels"),
    "name": Column("str", "what was sampled"),
    "value": Column("int64", "its value then"),
}

#: Kinds of row of events.parquet; the first two are always written, the rest under ``--record all``.
EVENT_KINDS = ("prefill_start", "prefix_cache_event", "arrive", "admit", "preempt", "first_token", "finish",
               "step", "transfer", "evict")  # fmt: skip

#: events.parquet, in time order.
EVENT_COLUMNS: dict[str, Column] = {
    "time_ns": Column("int64", "start"),
    "duration_ns": Column("int64", "length; 0 for a moment"),
    "machine": Column("int16", "machine"),
    "kind": Column("str", "one of EVENT_KINDS"),
    "request": Column("int32", "request, -1 when it concerns none"),
    "detail": Column(
        "str",
        f"outcome of a prefix_cache_event; edge of a transfer, such as {HOPS[0]}; tier evicted",
    ),
    "tokens": Column(
        "int64",
        "prefix_cache_event: cached length; prefill_start: tokens really prefilled; step: prefill tokens",
    ),
    "blocks": Column("int64", "transfer, evict: blocks; step: decode sequences"),
    "left_tokens": Column("int64", "prefix_cache_event: tokens left to prefill; else 0"),
}


def miss_column(cause: MissCause) -> str:
    """Return the name of the column of the tokens missed for one cause."""
    return f"miss_{cause.name}_tokens"


#: Columns that ``--causes`` adds to requests.parquet: causes of missed prompt tokens at the first admission.
#: The tokens sum exactly to input_tokens - cached_prefix_length_used.
MISS_COLUMNS: dict[str, Column] = {
    miss_column(cause): Column("int64", f"prompt tokens missed: {cause.meaning}")
    for cause in reported_by("timed")
} | {"evicted_idle_ns": Column("int64", "longest time since the last use of an evicted block, else -1")}

#: Additional columns of requests.parquet if the scenario has objectives (``slo``).
SLO_COLUMNS: dict[str, Column] = {
    "within_slo": Column("int16", "1 within all its limits, 0 not, -1: no limit concerns it"),
}
