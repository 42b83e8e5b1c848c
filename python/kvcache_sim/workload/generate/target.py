"""Asking a workload for a hit ratio: one setting is turned until an unbounded cache would reach it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.ceiling import ceiling_hit_tokens
from kvcache_sim.workload.generate.assemble import assemble
from kvcache_sim.workload.generate.settings import Workload
from kvcache_sim.workload.trace import Trace

Kind = TypeVar("Kind", bound=Workload)

#: Requests on which the setting is searched, and halvings of its range.
SEARCH_REQUESTS = 20_000
HALVINGS = 12


def hit_ratio(trace: Trace) -> float:
    """Return the share of prompt tokens that an unbounded cache serves, requests one after another."""
    return float(ceiling_hit_tokens(trace).sum() / trace.input_tokens.sum())


def has_target(settings: Workload) -> bool:
    """Return whether a hit ratio is asked for."""
    return getattr(settings, "target_hit_ratio", None) is not None


def at_target(settings: Kind, seed: int) -> Kind:
    """Return settings whose ``target_hit_ratio`` is met by the kind's dial, the other settings kept.

    The ratio grows with the dial; it is searched by halving on the first requests. Raises UsageError,
    naming what can be reached, where the target lies outside.
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
    """Return the line that says what was asked for and what came out."""
    name = settings.dial[0]  # type: ignore[attr-defined]
    asked: float = settings.target_hit_ratio  # type: ignore[attr-defined]
    return (
        f"target hit ratio {asked:g}: reached {hit_ratio(trace):.4f} of prompt tokens with an unbounded "
        f"cache, {name} {getattr(settings, name):.4f}"
    )
