"""Every kind of log, in the order in which detection asks them."""

from __future__ import annotations

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.workload.imports import (
    aiperf,
    dynamo,
    kv_events,
    openai_log,
    prometheus,
    sglang_log,
    vllm_log,
)
from kvcache_sim.workload.imports.kind import LogKind

_MODULES = (dynamo, aiperf, kv_events, sglang_log, vllm_log, prometheus, openai_log)

KINDS: dict[str, LogKind] = {module.KIND.name: module.KIND for module in _MODULES}


def kind_named(name: str) -> LogKind:
    """Return a kind of log by name; UsageError for another."""
    if name not in KINDS:
        raise UsageError("unknown kind of log", where="--from", got=repr(name), expected=" | ".join(KINDS))
    return KINDS[name]


def kind_of(head: bytes, where: str) -> LogKind | None:
    """Return the kind of a log by its first bytes, None for a trace; TraceError for neither."""
    from kvcache_sim.workload.readers.signs import SIGNS

    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise TraceError("an empty log", where=where, expected="at least one request")
    for kind in KINDS.values():
        if kind.detect(text):
            return kind
    if any(knows(text) for knows in SIGNS.values()):
        return None
    shown = text.split(b"\n", 1)[0][:60].decode("utf-8", "replace")
    raise TraceError(
        "no known kind of log", where=f"{where}:1", got=shown, hint=f"name it with --from: {', '.join(KINDS)}"
    )
