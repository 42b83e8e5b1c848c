"""Every trace format by name."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.rows import Rows
from kvcache_sim.spelling import close_matches
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.signs import SIGNS

#: Formats that share a module with others like them; each of the others is ``FORMAT`` of its own.
_TOGETHER = {
    **dict.fromkeys(("sharegpt", "openai"), "conversations"),
    **dict.fromkeys(("mooncake", "bailian", "lmcache", "weka"), "json_rows"),
    **dict.fromkeys(("azure", "burstgpt", "vidur"), "csv_rows"),
}


def _place(name: str) -> str:
    room = _TOGETHER.get(name)
    return f"{room}:{name.upper()}" if room else f"{name.replace('-', '_')}:FORMAT"


#: Every format that is built in, in the order in which detection asks for their signs.
FORMATS: Rows[TraceFormat] = Rows("kvcache_sim.workload.readers", {name: _place(name) for name in SIGNS})


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
