"""The deployment of a pasted text: its workers, by role, and the router in front of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.documents import Worker, is_document, read_documents
from kvcache_sim.scenario.launch.line import (
    MOST_CHARACTERS,
    LaunchLine,
    Surroundings,
    lines_of_shell,
    no_launch_line,
)
from kvcache_sim.scenario.launch.shell_words import WHERE

#: Flags by which the nodes of one engine, or servers on one machine, differ.
_OF_NODE = re.compile(
    r"--(?:node-rank|host|port|headless|dist-init-addr|served-model-name|data-parallel-(?:start-)?rank|nccl-port"
    r"|disaggregation-bootstrap-port)$"
)
#: Flags that state a worker's role.
ROLE_FLAGS = ("--disaggregation-mode", "--is-prefill-worker", "--is-decode-worker")
_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "prefill": "prefill", "decode": "decode"}


@dataclass(frozen=True, slots=True)
class Deployment:
    """The workers of a text, the policy of its router ("" if it names none), and what starts no engine."""

    workers: tuple[Worker, ...]
    router: str = ""
    aside: tuple[str, ...] = ()


def read_deployment(text: str, model: str = "") -> Deployment:
    """Read a launch line, a script, or YAML documents; ``model`` stands in for a model that is not named.

    Raises UsageError for a text in which no engine starts, and for one that leaves open what decides.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError("too long", WHERE, f"{len(text):,} characters", f"at most {MOST_CHARACTERS:,}")
    if is_document(text):
        read = read_documents(text, model)
        found = Deployment(tuple(read.workers), read.router, tuple(read.aside))
    else:
        lines = lines_of_shell(text, Surroundings(), model)
        found = Deployment(tuple(Worker(line) for line in lines), lines[0].router if lines else "")
    if not found.workers:
        raise no_launch_line(text)
    return replace(found, workers=_together([replace(one, role=_role(one)) for one in found.workers]))


def _role(worker: Worker) -> str:
    """Return a worker's role: by its flags, else by what stands around it."""
    flags = worker.line.flags
    mode, prefills, decodes = ROLE_FLAGS
    stated = flags.get(mode, "")
    connector = re.search(r'"kv_role"\s*:\s*"(\w+)"', flags.get("--kv-transfer-config", ""))
    if stated in _ROLES:
        return _ROLES[stated]
    if connector and connector[1] in _ROLES:
        return _ROLES[connector[1]]
    if prefills in flags:
        return "prefill"
    return "decode" if decodes in flags else worker.role


def _together(workers: Sequence[Worker]) -> tuple[Worker, ...]:
    """Return workers of the same settings as one, with their replicas; the nodes of an engine are one."""
    found: list[Worker] = []
    nodes: dict[int, int] = {}
    for worker in workers:
        for at, one in enumerate(found):
            if one.role == worker.role and _settings(one.line) == _settings(worker.line):
                nodes[at] += worker.replicas
                break
        else:
            nodes[len(found)] = worker.replicas
            found.append(worker)
    return tuple(replace(one, replicas=_engines(one.line, nodes[at])) for at, one in enumerate(found))


def _settings(line: LaunchLine) -> object:
    kept = {name: value for name, value in line.flags.items() if not _OF_NODE.match(name)}
    return line.engine.name, line.model, kept, line.release


def _engines(line: LaunchLine, lines: int) -> int:
    """Return how many engines lines are: one has a line for each of its nodes."""
    nodes = line.flags.get("--nnodes", "1")
    per_engine = int(nodes) if nodes.isdecimal() and 1 <= int(nodes) <= 4096 else 1
    return -(-lines // per_engine)
