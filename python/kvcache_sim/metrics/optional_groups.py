"""Groups of the summary that only some runs have: their figures, each with its definition.

Models and adapters, hints of retention, speculative decoding, a shared pool, a fleet that changes, plug-ins,
and the context window of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.metrics.by_name import figures_by_name, summarize_by_name
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.policies.plugins.uses import PluginUse
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.serving.membership.scaling import FleetChange

MODELS = (
    *figures_by_name("models", "model"),
    Figure("adapters.named", "", "adapters that the trace's requests ask for"),
)


def summarize_models(
    rows: Mapping[str, NDArray[Any]], model_of: NDArray[np.int32], names: Sequence[str]
) -> dict[str, Any]:
    """Return the group ``models`` of the summary, from rows of ``requests`` and each request's model."""
    return {"models": {"by_name": summarize_by_name(rows, model_of, names)}}


def summarize_adapters(names: Sequence[str]) -> dict[str, Any]:
    """Return the group ``adapters`` of the summary."""
    return {"adapters": {"named": len(names)}}


_DROPPED = "retention.dropped_blocks"

RETENTION = (Figure(_DROPPED, "blocks", "copies that hints of the trace's rows dropped"),)


def summarize_retention(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``retention`` of the summary, empty if hints are not applied."""
    return {"retention": {"dropped_blocks": counters[_DROPPED]}} if _DROPPED in counters else {}


SPECULATION = (
    Figure("speculation.steps", "", "decode steps of a request that checked drafts"),
    Figure("speculation.drafted_tokens", "tokens", "tokens drafted"),
    Figure("speculation.accepted_tokens", "tokens", "of these, accepted; those behind an answer's end too"),
    Figure("speculation.acceptance", "share", "accepted / drafted"),
    Figure("speculation.mean_length", "tokens", "1 + accepted / steps: tokens that a step brings a request"),
    Figure("speculation.by_position", "share", "by position the share of steps that accepted a draft there"),
)


def summarize_speculation(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return ``speculation`` of the summary in a mapping, which is empty without drafts."""
    if "speculation.steps" not in counters:
        return {}
    steps, drafted = counters["speculation.steps"], counters["speculation.drafted"]
    positions = range(sum(name.startswith("speculation.accepted.") for name in counters))
    accepted = [counters[f"speculation.accepted.{position}"] for position in positions]
    figures = {
        "steps": steps,
        "drafted_tokens": drafted,
        "accepted_tokens": sum(accepted),
        "acceptance": sum(accepted) / drafted if drafted else None,
        "mean_length": 1 + sum(accepted) / steps if steps else None,
        "by_position": [count / steps for count in accepted],
    }
    return {"speculation": figures}


POOL = (
    Figure("pool.hit_tokens", "tokens", "of cache.hit_tokens.remote, those that the shared pool gave"),
    Figure("pool.put_blocks", "blocks", "blocks that machines put there"),
    Figure("pool.read_blocks", "blocks", "blocks that machines read there, prefetches included"),
    Figure("pool.refused_blocks", "blocks", "blocks that did not fit there: all of it was being read"),
    Figure("pool.evicted_blocks", "blocks", "blocks that its eviction policy took"),
    Figure("pool.lost_blocks", "blocks", "blocks that were there when the pool was lost"),
    Figure("pool.kept_blocks", "blocks", "blocks that are there at the end"),
)


def summarize_pool(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the group ``pool`` of the summary, empty without a shared pool."""
    found = {name.partition(".")[2]: n for name, n in counters.items() if name.startswith("pool.")}
    return {"pool": found} if found else {}


FLEET = (
    Figure("fleet.joined", "", "machines that joined while requests were served"),
    Figure("fleet.drained", "", "machines that were sent nothing more and served what they had"),
    Figure("fleet.lost", "", "machines that were lost with all they held"),
    Figure("fleet.retried", "", "times that a request of a lost machine started again elsewhere"),
    Figure("fleet.tiers_lost", "", "times that a tier of a machine lost its copies"),
    Figure("fleet.flushes", "", "times that caches were emptied, as by a weight update"),
    Figure("fleet.blocks_lost", "", "copies lost with these"),
    Figure("fleet.index_lost", "", "times that the router lost what it knew of the machines' caches"),
    Figure("fleet.ordered", "", "machines that a scaling policy ordered"),
    Figure("fleet.released", "", "machines that it released: canceled while starting, or drained and off"),
    Figure("fleet.warmed_blocks", "blocks", "blocks that machines copied from a peer before they served"),
    Figure(
        "fleet.machine_s",
        "s",
        "machine-seconds: of each machine from its order, or the first arrival, until it is off or the end",
    ),
    Figure("fleet.changes.row.s", "s", "when a scaling policy changed the fleet, in the whole run"),
    Figure("fleet.changes.row.change", "", "what it did: ordered, serves, drains or off"),
    Figure("fleet.changes.row.machine", "", "the machine"),
)

#: Changes and failures of the fleet, in order of output.
_COUNTED = (
    "joined",
    "drained",
    "lost",
    "retried",
    "tiers_lost",
    "flushes",
    "blocks_lost",
    "index_lost",
    "ordered",
    "released",
    "warmed_blocks",
)


def summarize_fleet(counters: Mapping[str, int], changes: Sequence[FleetChange]) -> dict[str, Any]:
    """Return the group ``fleet`` of the summary, empty without changes and failures."""
    found: dict[str, Any] = {
        name: counters[f"membership.{name}"] for name in _COUNTED if f"membership.{name}" in counters
    }
    if "membership.machine_ns" in counters:
        found["machine_s"] = counters["membership.machine_ns"] / NS_PER_S
        found["changes"] = [
            {"s": at_ns / NS_PER_S, "change": change, "machine": machine}
            for at_ns, change, machine in changes
        ]
    return {"fleet": found} if found else {}


PLUGINS = (
    Figure("plugins.row.kind", "", "the kind of a policy that is not built in"),
    Figure("plugins.row.name", "", "its name, as in the scenario"),
    Figure("plugins.row.calls", "", "calls of it on all machines"),
    Figure("plugins.row.s", "s", "wall time in these calls"),
)


def summarize_plugins(plugins: Sequence[PluginUse]) -> dict[str, Any]:
    """Return ``plugins``, a row for each plug-in; empty if a run has none."""
    if not plugins:
        return {}
    rows = [
        {"kind": use.kind, "name": use.name, "calls": use.calls, "s": use.ns / NS_PER_S} for use in plugins
    ]
    return {"plugins": rows}


CONTEXT_WINDOW = (
    Figure("context_window.max_model_len", "tokens", "the context: most tokens of a prompt and its answer"),
    Figure(
        "context_window.shortened",
        "",
        "requests that lost their oldest history to fit replica.max_model_len",
    ),
    Figure("context_window.dropped_tokens", "tokens", "prompt tokens they lost"),
    Figure("context_window.rejected", "", "requests.rejected_beyond_context"),
    Figure("context_window.answers_ended", "", "finished requests whose prompt and answer fill it"),
)


def summarize_context_window(
    rejected: int, answers_ended: int, trace: Trace, max_model_len: int
) -> dict[str, Any]:
    """Return ``context_window`` of the summary: the context, and the requests that it changed or rejected."""
    return {
        "max_model_len": max_model_len,
        "shortened": int(np.count_nonzero(trace.dropped_tokens)),
        "dropped_tokens": int(trace.dropped_tokens.sum()),
        "rejected": rejected,
        "answers_ended": answers_ended,
    }
