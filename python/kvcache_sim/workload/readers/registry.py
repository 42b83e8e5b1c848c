"""Every trace format, in the order in which detection asks them."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.spelling import close_matches
from kvcache_sim.workload.readers import (
    aiperf_dag,
    aiperf_multi_turn,
    aiperf_weka,
    azure,
    bailian,
    burstgpt,
    dynamo_agentic,
    lmcache,
    mooncake,
    openai,
    sharegpt,
    vidur,
    weka,
)
from kvcache_sim.workload.readers.format import TraceFormat

_MODULES = (
    sharegpt,
    aiperf_dag,
    aiperf_multi_turn,
    openai,
    bailian,
    lmcache,
    weka,
    aiperf_weka,
    dynamo_agentic,
    mooncake,
    azure,
    burstgpt,
    vidur,
)

FORMATS: dict[str, TraceFormat] = {module.FORMAT.name: module.FORMAT for module in _MODULES}


def format_named(name: str) -> TraceFormat:
    """Return a format by name: built in, or of the entry-point group ``kvsim.trace_format``."""
    if name in FORMATS:
        return FORMATS[name]
    from importlib.metadata import entry_points

    plugins = {e.name: e for e in entry_points(group="kvsim.trace_format")}
    if name in plugins:
        loaded = plugins[name].load()
        if not isinstance(loaded, TraceFormat):
            raise UsageError(
                "a trace format plug-in must be a TraceFormat", where=name, got=repr(loaded)[:60]
            )
        return loaded
    known = [*FORMATS, *plugins]
    close = close_matches(name, known, 1)
    raise UsageError(
        "unknown trace format",
        where="--trace-format",
        got=repr(name),
        expected=" | ".join(known),
        hint=f"did you mean {close[0]}?" if close else "",
    )
