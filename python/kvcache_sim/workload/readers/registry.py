"""Every trace format by name, and detection of a file's format from its first bytes."""

from __future__ import annotations

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.rows import Rows
from kvcache_sim.spelling import close_matches
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat

#: Formats that share a module with similar formats; every other format is ``FORMAT`` of its own module.
_TOGETHER = {
    **dict.fromkeys(("sharegpt", "openai"), "conversations"),
    **dict.fromkeys(("mooncake", "bailian", "lmcache", "weka"), "json_rows"),
    **dict.fromkeys(("azure", "burstgpt", "vidur"), "csv_rows"),
}


def _attribute(name: str) -> str:
    package = _TOGETHER.get(name)
    return f"{package}:{name.upper()}" if package else f"{name.replace('-', '_')}:FORMAT"


#: Every built-in format, in the order of detection.
FORMATS: Rows[TraceFormat] = Rows("kvcache_sim.workload.readers", {name: _attribute(name) for name in SIGNS})


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


_HINT = "name it with --trace-format: " + ", ".join(SIGNS)


def check_text(head: bytes, where: str) -> None:
    """Refuse a file whose first bytes are not UTF-8 text (``TraceError``)."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(
            "UTF-16 text", where=f"{where}:1:1", expected="UTF-8", hint="iconv -f utf-16 -t utf-8"
        )
    if b"\0" in head[:64]:
        col = head.index(b"\0") + 1
        raise TraceError("UTF-16 or binary data", where=f"{where}:1:{col}", expected="UTF-8 text")
    if head.startswith((b"PK\x03\x04", b"BZh", b"\xfd7zXZ")):
        raise TraceError(
            "not a text file",
            where=f"{where}:1:1",
            got="a zip, bzip2 or xz file",
            expected="text, .gz, .zst or Parquet",
        )


def format_of(head: bytes, where: str, name: str | None) -> TraceFormat:
    """Return the format of a file by its first bytes, or the named one; raises as ``detect_format``."""
    if head.startswith(b"PAR1"):
        from kvcache_sim.workload.readers.parquet import parquet_format

        return parquet_format(where)
    check_text(head, where)
    return format_named(name) if name else detect_format(head, where)


def detect_format(head: bytes, where: str) -> TraceFormat:
    """Return the first format that matches these bytes; ``TraceError`` if none does."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise TraceError("no requests", where=where, got="no rows", expected="at least one request")
    for name, matches in SIGNS.items():
        if matches(text):
            return FORMATS[name]
    line = head[: len(head) - len(head.lstrip())].count(b"\n") + 1
    shown = text.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    got = shown[:40] + ("…" if len(shown) > 40 else "")
    if text.startswith(b"["):
        raise TraceError(
            "a JSON array where rows should be",
            where=f"{where}:{line}:1",
            got=got,
            expected="one object a line",
            hint="jq -c '.[]' FILE writes it so",
        )
    if text.startswith(b"{"):
        return FORMATS["mooncake"]  # a row of JSON: its reader says what is missing, and where
    what = "CSV of no known columns" if b"," in text.split(b"\n", 1)[0] else "no known trace format"
    raise TraceError(what, where=f"{where}:{line}:1", got=got, expected="a trace", hint=_HINT)
