"""Trace formats: name, reader, and detection rule, in the order of detection; a file's format and block size.

A detection rule imports nothing of its format: a run reads one format and does not import the other readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kvcache_sim._core import TraceProblem, TraceSource
from kvcache_sim.base.errors import KvsimError, TraceError, UsageError
from kvcache_sim.base.rows import Rows
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.values import Value
from kvcache_sim.workload.readers.settings import ReadSettings

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceRows


class TraceFormat(Value):
    """One published format; ``read`` takes an opened source, ``detect`` its first bytes."""

    name: str
    help: str
    #: True if the first (decompressed) bytes of a file are of this format.
    detect: Callable[[bytes], bool]
    #: Reads the source at ``settings.block_size`` tokens per id (None: the format's own).
    read: Callable[[TraceSource, ReadSettings], RawColumns]
    #: The format's own block size.
    block_size: int = 512
    #: Tokens per id from a file's first bytes, if these or the settings determine them; None: the format's
    #: own.
    detect_block: Callable[[bytes, ReadSettings], int] | None = None
    #: Opens the source to read its rows in windows; None if the format does not support it.
    rows: Callable[[TraceSource, ReadSettings], TraceRows] | None = None
    #: The same for replays of all ids alone; the file states its tokens per id.
    replay_rows: Callable[[TraceSource, ReadSettings], TraceRows] | None = None
    #: True if the rows of a file number their turns, as kvsim's, which are whole prompts; None: rows of the
    #: format are whole prompts.
    numbers_turns: Callable[[bytes], bool] | None = None

    def block_of(self, head: bytes, settings: ReadSettings) -> int:
        """Return the tokens per id of a file that begins with ``head``; raises like the reader."""
        if settings.block_size is not None:
            return settings.block_size
        return self.block_size if self.detect_block is None else self.detect_block(head, settings)


#: Bytes of a file used for detection, after its blank lines; of these no more than the second number.
HEAD_BYTES, MOST_BLANK_BYTES = 1 << 16, 1 << 24
_BLANK = b" \t\r\n\v\f"


def read_head(source: TraceSource) -> bytes:
    """Return the first bytes of a source without consuming them: more if it begins with blank lines."""
    size = HEAD_BYTES
    head = source.head(size)
    while len(head) == size and not head.strip(_BLANK) and size < MOST_BLANK_BYTES:
        size *= 4
        head = source.head(size)
    return head


def first_row(head: bytes) -> dict[str, Any] | None:
    """Return the members of a file's first line of JSON, truncated ones by name; None if it is no object."""
    import json

    line = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return dict.fromkeys(_own_names(line.decode("utf-8", "replace")))
    return row if isinstance(row, dict) else None


def first_object(head: bytes) -> dict[str, Any]:
    """Return the members of a file's first object, also of an array's or a page's; {} if it has none.

    Those of an object that is cut off have no values.
    """
    import json

    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    start = re.match(r'(?:\[\s*)?(?:\{\s*"data"\s*:\s*\[\s*)?(?=\{)', text)
    if start is None:
        return {}
    try:
        value: dict[str, Any] = json.JSONDecoder().raw_decode(text, start.end())[0]
    except (ValueError, RecursionError):
        return dict.fromkeys(_own_names(text[start.end() :]))
    page = value.get("data")
    return page[0] if isinstance(page, list) and page and isinstance(page[0], dict) else value


def _own_names(text: str) -> Iterator[str]:
    """Yield the names of a cut object's own members."""
    depth, last = 0, ""
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]', text):
        token = found[0]
        depth += (token in "{[") - (token in "}]")
        if depth == 0:
            return
        if token == ":" and depth == 1:
            yield last.strip('"')
        last = token


def rows_with_ids(head: bytes) -> Iterator[dict[str, Any]]:
    """Yield the complete rows with ``hash_ids`` in a file's first bytes, whatever the other members are."""
    import json

    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for line in lines if len(lines) == 1 else lines[:-1]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("hash_ids"), list) and row["hash_ids"]:
            yield row


def header(head: bytes) -> list[str]:
    """Return the column names of a CSV file's first line."""
    line = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip(b"\r")
    return [name.strip().strip('"') for name in line.decode("utf-8", "replace").split(",")]


Sign = Callable[[bytes], bool]


#: Members that hold the turns of a conversation: ShareGPT's and its variants', WildChat's and LMSYS's.
TURNS = ("conversations", "conversation", "items")


def _sharegpt(head: bytes) -> bool:
    if b'"conversations"' in head and b'"value"' in head and head.lstrip()[:1] in (b"[", b"{"):
        return True
    row = first_object(head)
    turns = next((row[name] for name in TURNS if name in row), ())
    if not isinstance(turns, list):
        return turns is None
    return bool(turns) and isinstance(turns[0], dict) and bool({"from", "role"} & turns[0].keys())


def _aiperf_dag(head: bytes) -> bool:
    row = first_row(head)
    if row is None or "session_id" not in row:
        return False
    turns = "turns" in row and any(f'"{name}"'.encode() in head for name in ("messages", "forks", "spawns"))
    return turns or "orchestrator" in row


def _aiperf_multi_turn(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and "turns" in row and (b'"text"' in head or b'"texts"' in head)


#: Members of a logged request that hold its time.
TIMES = (
    "timestamp", "time", "ts", "startTime", "start_time", "request_time", "created_at", "date",
    "request_created_at", "processed_time",
)  # fmt: skip


#: A date since 1970 in seconds is later; members of a logged chat that Mooncake's rows have not.
_LEAST_DATE, _LOGGED = 1e8, {"model", "max_tokens", "response", "output", "usage", "request", "body"}


def _mooncake_texts(head: bytes) -> bool:
    row = first_object(head)
    at_ms = row.get("timestamp")
    is_offset = isinstance(at_ms, int | float) and at_ms < _LEAST_DATE and _LOGGED.isdisjoint(row)
    chats = "messages" in row or "payload" in row
    return "text_input" in row or (chats and ("output_length" in row or is_offset))


def _vllm_custom(head: bytes) -> bool:
    members = first_object(head).keys()
    return "prompt" in members and members.isdisjoint(
        (*TIMES, "response", "completion", "usage", "input_length")
    )


def _openai(head: bytes) -> bool:
    row = first_object(head)
    body = row.get("body", row.get("params"))
    is_batch = "custom_id" in row and not row.keys().isdisjoint(("body", "params"))
    chats = "messages" in row or (isinstance(body, dict) and "messages" in body)
    return is_batch or (chats and b'"role"' in head)


def _bailian(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"chat_id", "parent_chat_id"} <= row.keys()


def _lmcache(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"input_bytes", "output_bytes"} <= row.keys()


def _weka(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and {"session", "rows"} <= row.keys()


def _aiperf_weka(head: bytes) -> bool:
    return b'"hash_id_scope"' in head and b'"requests"' in head


#: Members that only this format has.
_AGENTIC = {"wait_for", "tool_wait_ms", "tool_events", "branches"}


def _dynamo_agentic(head: bytes) -> bool:
    row = first_row(head)
    if row is None or "request_id" not in row or "hash_ids" not in row:
        return False
    return bool(_AGENTIC & row.keys()) or any(f'"{name}"'.encode() in head for name in _AGENTIC)


_MOONCAKE = {"input_length", "output_length", "hash_ids"}


def _mooncake(head: bytes) -> bool:
    row = first_row(head)
    return row is not None and bool(_MOONCAKE & row.keys())


def _columns(*names: str) -> Sign:
    return lambda head: set(names) <= set(header(head))


SIGNS: dict[str, Sign] = {
    "sharegpt": _sharegpt,
    "aiperf-dag": _aiperf_dag,
    "aiperf-multi-turn": _aiperf_multi_turn,
    "mooncake-texts": _mooncake_texts,
    "vllm-custom": _vllm_custom,
    "openai": _openai,
    "bailian": _bailian,
    "lmcache": _lmcache,
    "weka": _weka,
    "aiperf-weka": _aiperf_weka,
    "dynamo-agentic": _dynamo_agentic,
    "mooncake": _mooncake,
    "azure": _columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": _columns("Timestamp", "Request tokens", "Response tokens"),
    "vidur": _columns("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
}


def is_trace_alone(head: bytes) -> bool:
    """Return True if a file's first bytes are of a format of traces other than chats, which logs have too."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    signs = (matches(text) for name, matches in SIGNS.items() if name != "openai")
    return head.startswith(b"PAR1") or any(signs)


#: Formats that share a module with similar formats; every other format is ``FORMAT`` of its own module.
_TOGETHER = {
    **dict.fromkeys(("sharegpt", "openai", "vllm-custom"), "conversations"),
    **dict.fromkeys(("mooncake", "bailian", "lmcache", "weka"), "json_rows"),
    **dict.fromkeys(("azure", "burstgpt", "vidur"), "csv_rows"),
}


def _attribute(name: str) -> str:
    package = _TOGETHER.get(name)
    return f"{package}:{name.upper().replace('-', '_')}" if package else f"{name.replace('-', '_')}:FORMAT"


#: Every built-in format, in the order of detection.
FORMATS: Rows[TraceFormat] = Rows("kvcache_sim.workload.readers", {name: _attribute(name) for name in SIGNS})


#: Files of Parquet state their columns: they have no sign, and a format of their own for each file.
_PARQUET: Rows[Callable[[str], TraceFormat]] = Rows(
    "kvcache_sim.workload.readers", {"parquet": "parquet:parquet_format"}
)


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


_HINT = "known: " + ", ".join(SIGNS)


def check_text(head: bytes, where: str) -> None:
    """Refuse a file whose first bytes are not UTF-8 text (``TraceError``)."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(
            "UTF-16 text", where=f"{where}:1:1", expected="UTF-8", hint="iconv -f utf-16 -t utf-8"
        )
    if b"\0" in head[:64]:
        col = head.index(b"\0") + 1
        raise TraceError("UTF-16 or binary data", where=f"{where}:1:{col}", expected="UTF-8 text")


def format_of(head: bytes, where: str, name: str | None) -> TraceFormat:
    """Return the format of a file by its first bytes, or the named one; raises as ``detect_format``."""
    if head.startswith(b"PAR1"):
        return _PARQUET["parquet"](where)
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
    at = f"{where}:{line}:1"
    if re.match(rb'\[\s*([\[{"\]]|\d+\s*[,\]])', text):
        raise _array(text, at, got)
    names = first_row(text)
    later = text.startswith(b"{") and any(f'"{name}"'.encode() in text for name in _MOONCAKE)
    if later or (names is not None and names.keys() <= {"timestamp", "session_id", "delay"}):
        return FORMATS["mooncake"]  # its reader says what is wrong with the first row, and where
    got = f"a row of {', '.join(list(names)[:8])}" if names else got
    what = "CSV of no known columns" if _is_csv(text) else "no known trace format"
    raise TraceError(what, where=at, got=got, expected="a trace, or a log for kvsim trace import", hint=_HINT)


def _array(text: bytes, at: str, got: str) -> TraceError:
    """Return the error of a JSON array; the hint of lines where its first element is of a format of lines."""
    import json

    what = "a JSON array of no known format"
    try:
        first, _ = json.JSONDecoder().raw_decode(text[1:].decode("utf-8", "ignore").lstrip())
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict):
        row = json.dumps(first).encode()
        if any(matches(row) for matches in SIGNS.values()):
            what, hint = "a JSON array where rows should be", "jq -c '.[]' FILE writes it so"
            return TraceError(what, where=at, got=got, expected="one object a line", hint=hint)
        got = "objects of " + ", ".join(list(first)[:8])
    return TraceError(what, where=at, got=got, expected="a trace, or a log for kvsim trace import")


def _is_csv(text: bytes) -> bool:
    """Return True if the first two lines have equally many cells, at least two, and the first names them."""
    lines = [line.strip() for line in text.split(b"\n", 2)[:2]]
    cells = lines[0].split(b",")
    named = all(0 < len(cell) <= 60 and not set(cell) & set(b"{}[]<>") for cell in cells)
    return (
        len(cells) > 1
        and named
        and (len(lines) < 2 or not lines[1] or len(lines[1].split(b",")) == len(cells))
    )


def block_of_file(path: str, settings: ReadSettings) -> int | None:
    """Return the block size of a trace file; None if its first bytes do not determine it."""
    if settings.block_size is not None:
        return settings.block_size
    try:
        head = read_head(TraceSource(path))
        chosen = format_of(head, path, settings.format)
        return chosen.block_of(head, settings)
    except (KvsimError, TraceProblem, OSError, ValueError):
        return None
