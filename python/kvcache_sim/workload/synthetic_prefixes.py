"""Synthetic prefixes for traces without block ids: an assumption, which is stated with every result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value
from kvcache_sim.workload.sessions import previous_turns
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, Trace

#: Number of earlier requests considered as predecessors of a request.
_TRIES = 32
#: Longest time between a turn and its predecessor's arrival.
_SOONEST_NS = NS_PER_S
#: Prefix of the notes on such a trace.
SYNTHESISED = "prefixes are synthesised"


class PrefixAssumption(Value):
    """Assumed prefix sharing of requests of which only times and lengths are known.

    A request continues an earlier request with probability 1 - 1 / ``turns``: its prompt then starts with
    that request's prompt and answer. Candidates arrived within ``pause_ns`` before it and are short enough.
    ``turns`` of 2.0 is the mean of LMSYS-Chat-1M's conversations (Zheng et al. 2023).
    """

    turns: float = 2.0
    pause_ns: int = 600 * NS_PER_S
    seed: int = 0


def with_synthetic_prefixes(trace: Trace, assumed: PrefixAssumption) -> Trace:
    """Return the trace with sessions, its own or synthetic ones, whose prompts are shared from turn to turn.

    Raises UsageError for a trace with block ids. The note states the assumption and its result. Cost: at most
    32 candidates per request.
    """
    if len(trace.block_ids):
        raise UsageError("the trace names blocks: there is nothing to synthesise", "synthesise_prefixes")
    held, session, turn = trace.input_tokens + trace.output_tokens, trace.session, trace.turn
    if bool(np.any(session != NO_SESSION)):
        before = previous_turns(trace).astype(np.int64)
        before[trace.input_tokens <= held[before]] = NO_REQUEST
        came = "turns of the trace's own sessions are assumed to begin with the turn before and its answer"
    else:
        before = _followed(trace, assumed)
        session, turn = _sessions(before)
        count = int(session.max()) + 1 if len(session) else 0
        came = f"{count:,} sessions of {len(trace) / max(count, 1):.2f} turns ({assumed.turns:g} asked for)"
        came += f", pauses of at most {assumed.pause_ns / NS_PER_S:g} s"
    shared = np.where(before >= 0, held[before], 0)
    share = int(shared.sum()) / max(int(trace.input_tokens.sum()), 1)
    remark = (
        f"{trace.source}: {SYNTHESISED}, not measured: {came}; {100 * share:.1f} % of the prompt tokens "
        "repeat what a session had before"
    )
    return replace(trace, session=session, turn=turn, warnings=(*trace.warnings, remark))


def _followed(trace: Trace, assumed: PrefixAssumption) -> NDArray[np.int64]:
    """Return the request that each one continues, -1 if it starts a session; none is continued twice."""
    draw = stream(assumed.seed, "synthetic prefixes")
    arrival_ns, prompts = trace.arrival_ns, trace.input_tokens
    held = prompts + trace.output_tokens
    order = np.argsort(arrival_ns, kind="stable")
    times = arrival_ns[order]
    first = np.searchsorted(times, times - assumed.pause_ns)
    last = np.searchsorted(times, times - _SOONEST_NS, side="right")
    continues = draw.random(len(trace)) < 1 - 1 / assumed.turns
    positions = draw.random((len(trace), _TRIES))
    before = np.full(len(trace), -1, np.int64)
    taken = np.zeros(len(trace), bool)
    for position in np.flatnonzero(continues & (last > first)).tolist():
        low, high = int(first[position]), int(last[position])
        tried = order[low + (positions[position] * (high - low)).astype(np.int64)]
        request = order[position]
        fits = np.flatnonzero(~taken[tried] & (held[tried] < prompts[request]))
        if len(fits):
            before[request] = tried[fits[0]]
            taken[before[request]] = True
    return before


def _sessions(before: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the session of each request, numbered by first appearance in the file, and its turn there."""
    turn = np.zeros(len(before), np.int32)
    opener = np.arange(len(before))
    at = before.copy()
    while bool((at >= 0).any()):
        going = at >= 0
        turn[going] += 1
        opener[going] = at[going]
        at[going] = before[at[going]]
    _, session = np.unique(opener, return_inverse=True)
    return session.astype(np.int32), turn
