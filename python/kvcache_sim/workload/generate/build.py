"""Settings and trace of a workload from a kind's name and a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.workload.generate.dialogues import Agentic, Conversational, Overflow
from kvcache_sim.workload.generate.requests import Requests, make_requests
from kvcache_sim.workload.generate.settings import Workload, from_mapping
from kvcache_sim.workload.generate.singles import Diverse, FewShot, Rag, Repetitive
from kvcache_sim.workload.rows import by_first_appearance
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, NOT_GIVEN, Trace
from kvcache_sim.workload.upper_bound import upper_bound_hit_tokens

Kind = TypeVar("Kind", bound=Workload)

#: Number of requests for the search of the setting, and number of bisection steps.
SEARCH_REQUESTS = 20_000
HALVINGS = 12


def hit_ratio(trace: Trace) -> float:
    """Return the share of prompt tokens that an unbounded cache hits, with requests in sequence."""
    return float(upper_bound_hit_tokens(trace).sum() / trace.input_tokens.sum())


def has_target(settings: Workload) -> bool:
    """Return True if a target hit ratio is set."""
    return getattr(settings, "target_hit_ratio", None) is not None


def at_target(settings: Kind, seed: int) -> Kind:
    """Return settings whose ``target_hit_ratio`` is reached with the kind's dial; others are unchanged.

    The ratio increases with the dial; it is searched by bisection on the first requests. Raises UsageError
    with the reachable range if the target is outside.
    """
    name, high = settings.dial  # type: ignore[attr-defined]  # only kinds with a dial have a target
    target: float = settings.target_hit_ratio  # type: ignore[attr-defined]
    sample = min(settings.requests, SEARCH_REQUESTS)

    def ratio(dial: float) -> float:
        part: dict[str, Any] = {"requests": sample, name: dial}
        turned = replace(settings, **part)
        return hit_ratio(assemble(turned, seed, ""))

    low, least, most = 0.0, ratio(0.0), ratio(high)
    if not least <= target <= most:
        raise UsageError(
            "out of reach",
            where="workload.target_hit_ratio",
            got=f"{target:g}",
            expected=f"{least:.4f} … {most:.4f} with these lengths ({name} from 0 to {high:g})",
        )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if ratio(middle) < target:
            low = middle
        else:
            high = middle
    found: dict[str, Any] = {name: (low + high) / 2}
    return replace(settings, **found)


def reached(settings: Kind, trace: Trace) -> str:
    """Return a sentence with the target and the reached ratio."""
    name = settings.dial[0]  # type: ignore[attr-defined]
    asked: float = settings.target_hit_ratio  # type: ignore[attr-defined]
    return (
        f"target hit ratio {asked:g}: reached {hit_ratio(trace):.4f} of prompt tokens with an unbounded "
        f"cache, {name} {getattr(settings, name):.4f}"
    )


#: Every kind of workload by its name.
KINDS: dict[str, type[Workload]] = {
    "conversational": Conversational,
    "repetitive": Repetitive,
    "diverse": Diverse,
    "few-shot": FewShot,
    "overflow": Overflow,
    "agentic": Agentic,
    "rag": Rag,
}


def assemble(settings: Workload, seed: int, source: str) -> Trace:
    """Return the whole workload in order of arrival, ties in order of generation, with dense ids."""
    made = Requests.joined([requests for requests, _ in make_requests(settings, seed)])
    rows = made.take(np.argsort(made.arrival_ns, kind="stable"))
    row_of = np.empty(len(rows), np.int64)
    row_of[rows.number] = np.arange(len(rows))
    session, names = _by_appearance(rows.session)
    return Trace(
        arrival_ns=rows.arrival_ns,
        input_tokens=rows.input_tokens,
        output_tokens=rows.output_tokens,
        id_offsets=np.concatenate(([0], np.cumsum(rows.id_counts))),
        block_ids=by_first_appearance(rows.block_ids),
        block_size=settings.block_size,
        session=session.astype(np.int32),
        turn=rows.turn.astype(np.int32),
        think_ns=rows.think_ns,
        is_conversational_turn=rows.turn > 0,
        session_names=[f"s{name}" for name in names.tolist()],
        after=np.where(rows.after == NO_REQUEST, NO_REQUEST, row_of[rows.after]).astype(np.int32),
        history_tokens=np.where(rows.turn > 0, rows.history_tokens, NOT_GIVEN),
        source=source,
    )


def _by_appearance(session: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sessions renumbered in order of first appearance, and the old number of each."""
    distinct, first = np.unique(session, return_index=True)
    named = distinct != NO_SESSION
    names = distinct[named][np.argsort(first[named])]
    rank = np.full(int(session.max()) + 2, NO_SESSION)  # the last entry stands for NO_SESSION
    rank[names] = np.arange(len(names))
    return rank[session], names


def settings_of(kind: str, mapping: Mapping[str, Any]) -> Workload:
    """Return the validated settings of a kind; values as in a scenario, times with their units.

    Raises UsageError for an unknown kind or key and for a value out of range, naming ``workload.KEY``.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        near = close_matches(str(kind), KINDS, n=1)
        raise UsageError(
            "unknown kind of workload",
            where="workload.kind",
            got=repr(kind),
            expected=" | ".join(KINDS),
            hint=f"did you mean {near[0]}?" if near else "",
        )
    settings = from_mapping(KINDS[kind], mapping)
    dial = getattr(settings, "dial", ("", 0.0))[0]
    if mapping.get("target_hit_ratio") is not None and dial in mapping:
        raise UsageError(
            "is chosen by target_hit_ratio", where=f"workload.{dial}", hint="give one of the two"
        )
    return settings


def build(kind: str, mapping: Mapping[str, Any], seed: int) -> Trace:
    """Return the trace of a workload: equal arguments give equal rows on any machine.

    With a target hit ratio the trace's first warning has the reached ratio. Cost: about a second for 100,000
    requests; more with a target, whose search uses a part of the requests. Raises as ``settings_of``.
    """
    settings = settings_of(kind, mapping)
    if has_target(settings):
        settings = at_target(settings, seed)
    trace = assemble(settings, seed, f"workload {kind}")
    if has_target(settings):
        trace = replace(trace, warnings=(reached(settings, trace), *trace.warnings))
    return trace
