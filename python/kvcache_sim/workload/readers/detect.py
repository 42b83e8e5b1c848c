"""Which format a file is of, from its first bytes."""

from __future__ import annotations

from kvcache_sim.errors import TraceError
from kvcache_sim.workload.readers.format import TraceFormat
from kvcache_sim.workload.readers.registry import FORMATS
from kvcache_sim.workload.readers.signs import SIGNS

_HINT = "name it with --trace-format: " + ", ".join(SIGNS)


def check_text(head: bytes, where: str) -> None:
    """Refuse what is no UTF-8 text at its first bytes (``TraceError``)."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(
            "UTF-16 text", where=f"{where}:1:1", expected="UTF-8", hint="iconv -f utf-16 -t utf-8"
        )
    if b"\0" in head[:64]:
        col = head.index(b"\0") + 1
        raise TraceError("UTF-16 or binary data", where=f"{where}:1:{col}", expected="UTF-8 text")
    if head.startswith((b"PK\x03\x04", b"PAR1", b"BZh", b"\xfd7zXZ")):
        raise TraceError(
            "not a text file",
            where=f"{where}:1:1",
            got="a zip, Parquet, bzip2 or xz file",
            expected="text, .gz or .zst",
        )


def detect_format(head: bytes, where: str) -> TraceFormat:
    """Return the first format that knows these bytes; ``TraceError`` if none does."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise TraceError("no requests", where=where, got="no rows", expected="at least one request")
    for name, knows in SIGNS.items():
        if knows(text):
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
