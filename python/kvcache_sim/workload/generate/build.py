"""From a kind's name and a mapping to its settings, and to its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.spelling import close_matches
from kvcache_sim.workload.generate.assemble import assemble
from kvcache_sim.workload.generate.fields import from_mapping
from kvcache_sim.workload.generate.kinds import KINDS
from kvcache_sim.workload.generate.settings import Workload
from kvcache_sim.workload.generate.target import at_target, has_target, reached
from kvcache_sim.workload.trace import Trace


def settings_of(kind: str, mapping: Mapping[str, Any]) -> Workload:
    """Return the checked settings of a kind; values are as in a scenario, times with their units.

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
    """Return the trace of a workload: equal arguments give equal rows anywhere.

    With a target hit ratio the ratio reached is the trace's first warning line. Cost: about a second for
    100,000 requests; more with a target, which is searched for on a part. Raises as ``settings_of``.
    """
    settings = settings_of(kind, mapping)
    if has_target(settings):
        settings = at_target(settings, seed)
    trace = assemble(settings, seed, f"workload {kind}")
    if has_target(settings):
        trace = replace(trace, warnings=(reached(settings, trace), *trace.warnings))
    return trace
