"""Several launch lines as one scenario: pools of prefill and decode, and machines that differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvcache_sim.scenario.launch.deployment import ROLE_FLAGS, Deployment
from kvcache_sim.scenario.launch.documents import Worker
from kvcache_sim.scenario.launch.line import LaunchLine
from kvcache_sim.scenario.launch.making import DEFAULT, Making, take_out

#: Sections that ``machines[k]`` may have its own values of.
_OWN = ("replica", "tiers")
#: Rules of flags that spread an engine over ranks.
_OF_RANKS = ("dp", "attention", "attention-ranks")
#: Sections that say how many machines there are, and how requests reach them.
_OF_CLUSTER = ("cluster", "pools", "router")


def around(deployment: Deployment) -> dict[str, str]:
    """Return the settings that stand around each line while its own are written."""
    workers, roles = deployment.workers, {worker.role for worker in deployment.workers}
    if {"prefill", "decode"} <= roles:
        return {"pools.prefill": "1", "pools.decode": "1"}
    several = len(workers) == 1 and workers[0].replicas > 1
    return {"cluster.machines": str(workers[0].replicas)} if several else {}


def of_pool(line: LaunchLine) -> LaunchLine:
    """Return a line without the flags that state its role, which is that of its pool."""
    return replace(line, flags={name: text for name, text in line.flags.items() if name not in ROLE_FLAGS})


def without_ranks(line: LaunchLine) -> LaunchLine | None:
    """Return a line with its ranks as one tensor-parallel group; None if it has no ranks.

    Ranks in lock step hand nothing over between the machines of a scenario's pools.
    """
    rules = {name: flag.rule for name, flag in line.engine.flags.items()}
    flags = {name: text for name, text in line.flags.items() if rules.get(name) not in _OF_RANKS}
    if flags == line.flags:
        return None
    tensor, ranks = (next((name for name, rule in rules.items() if rule == one), "") for one in ("tp", "dp"))
    degrees = line.flags.get(tensor, "1"), line.flags.get(ranks, "1")
    if line.engine.name == "vllm" and all(degree.isdecimal() and len(degree) < 5 for degree in degrees):
        flags[tensor] = str(int(degrees[0]) * int(degrees[1]))
    return replace(line, flags=flags)


def joined(deployment: Deployment, made: Sequence[Making]) -> Making:
    """Return one scenario of all lines: the first one's settings, with those in which other machines differ.

    Machines that prefill come first, as in a cluster's pools.
    """
    order = {"prefill": 0, "decode": 1, "both": 2}
    pairs = sorted(zip(deployment.workers, made, strict=True), key=lambda pair: order[pair[0].role])
    (_, first), *others = pairs
    for text in deployment.aside:
        first.note("no effect", text, "no engine starts there")
    for each, its in pairs:
        for text in each.line.aside:
            repeated = text.startswith("for ")
            why = "nearest: cluster.machines" if repeated else "around the engine's command; it is not run"
            its.note("decides" if repeated else "no effect", text, why)
    if others:
        _join(first, pairs)
    if deployment.router and (why := first.attempt({"router.policy": deployment.router}, DEFAULT)):
        first.note("no effect", f"router {deployment.router}", why)
    return first


def _join(first: Making, pairs: Sequence[tuple[Worker, Making]]) -> None:
    """Write the numbers of machines, and the settings of those that are not of the first line."""
    worker, others = pairs[0][0], pairs[1:]
    counts = [each.replicas * _machines(its) for each, its in pairs]
    if first.has("cluster.machines"):
        take_out(("cluster", "machines"), first.tree)
    if first.has("pools"):
        for role in ("prefill", "decode"):
            of_role = (count for (each, _), count in zip(pairs, counts, strict=True) if each.role == role)
            first.write(f"pools.{role}", str(sum(of_role)), DEFAULT)
    if not first.has("pools") or worker.role == "both" or others[-1][0].role == "both":
        first.write("cluster.machines", str(sum(counts)), DEFAULT)
    start = counts[0]
    for (each, its), count in zip(others, counts[1:], strict=True):
        _write_own(first, each, its, range(start, start + count))
        start += count
    first.settle()


def _machines(made: Making) -> int:
    """Return the machines of one engine."""
    return int(made.tree.values.get("cluster", {}).get("machines", 1))


def _write_own(first: Making, worker: Worker, its: Making, machines: range) -> None:
    """Write the settings in which a line's machines differ; say which of them a run cannot have."""
    who = " ".join(filter(None, (worker.role if worker.role != "both" else "", worker.name)))
    who = who or its.line.model
    for note in its.notes:
        if note not in first.notes:
            first.note(note.kind, f"{who}: {note.what}", note.why)
    theirs, common = {}, {}
    for key, text in _differing(first.tree.values, its.tree.values):
        if key.partition(".")[0] in _OWN:
            theirs[key] = text
        elif key != "cache.semantics" and key.partition(".")[0] not in _OF_CLUSTER:
            common[key] = text
    for key, text in common.items():
        first.note(
            "decides", f"{who}: {key} {text}", "one value for all machines; that of the first line holds"
        )
    settings = {f"machines[{index}].{key}": text for index in machines for key, text in theirs.items()}
    why = first.attempt(settings, DEFAULT) if settings else ""
    for key, text in theirs.items() if why else ():
        alone = {f"machines[{index}].{key}": text for index in machines}
        if first.attempt(alone, DEFAULT):
            first.note("decides", f"{who}: {key} {text}", why)


def _differing(
    first: Mapping[str, Any], other: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield the settings of ``other`` that ``first`` has not, and null for those that only ``first`` has."""
    for key in dict.fromkeys((*first, *other)):
        left, right = first.get(key), other.get(key)
        if left == right and (key in first) == (key in other):
            continue
        if isinstance(left, dict | None) and isinstance(right, dict | None):
            yield from _differing(left or {}, right or {}, f"{path}{key}.")
        else:
            yield f"{path}{key}", "null" if right is None else _flow(right)


def _flow(value: Any) -> str:
    """Return a value as one line of YAML."""
    return value if isinstance(value, str) else json.dumps(value)
