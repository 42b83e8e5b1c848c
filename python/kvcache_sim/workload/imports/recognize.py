"""A log where a trace should be: what it has, what is assumed, and the command that makes a trace of it."""

from __future__ import annotations

from itertools import islice
from shlex import quote

from kvcache_sim._core import TraceProblem
from kvcache_sim.base.errors import KvsimError, TraceError
from kvcache_sim.base.values import Value
from kvcache_sim.workload.imports.kind import LogKind, Reading
from kvcache_sim.workload.imports.known_formats import refuse_known
from kvcache_sim.workload.imports.naming import Imported, Logged, Naming, Notes
from kvcache_sim.workload.imports.turns import Turn, requests_of
from kvcache_sim.workload.imports.write import KINDS
from kvcache_sim.workload.readers.format import SIGNS
from kvcache_sim.workload.readers.problems import opened

#: Requests of a log that are read to say what it has.
_SAMPLE = 200


class _Content(Value):
    """A description of the first requests of a log."""

    said: str = ""
    #: Number of requests read.
    requests: int = 0
    #: True if answers, counts or latencies are logged with requests.
    answered: bool = False


def _content(kind: LogKind, path: str) -> _Content:
    """Return what the first requests of a log have; nothing if it cannot be read again, or is broken."""
    notes = Notes()
    try:
        found = kind.read(opened(path, "log"), Reading(Naming(16, b"-"), notes, skips=True))
        sample = [row for _, row in islice(found, _SAMPLE)]
        turns = requests_of([row for row in sample if isinstance(row, Turn)], notes)
        rows = [*(row for row in sample if not isinstance(row, Turn)), *turns]
    except (KvsimError, TraceProblem, OSError):
        return _Content()
    if not rows:
        return _Content(f"no requests ({'; '.join(notes.left_out)})" if notes.left_out else "")
    logged = [row for row in rows if isinstance(row, Logged)]
    imported = [row for row in rows if isinstance(row, Imported)]
    has = {
        "block ids": any(row.ids for row in imported),
        "prompts": any(row.prompt for row in logged),
        "answers or their lengths": any(row.answer or row.output_tokens for row in logged) or bool(imported),
        "sessions": any(row.session for row in rows),
        **{name.replace("_", " "): True for row in rows for name in row.measured},
    }
    parts = [f"{len(rows)}{'+' if len(rows) == _SAMPLE else ''} requests with times"]
    parts += [name for name, there in has.items() if there]
    if not (has["block ids"] or has["prompts"]):
        parts.append("lengths alone")
    assumed = f"; {'; '.join(notes.remarks)}" if notes.remarks else ""
    answered = any(row.answer or row.measured or row.input_tokens is not None for row in logged)
    return _Content(", ".join(parts) + assumed, len(rows), answered)


def refuse_log(head: bytes, where: str) -> None:
    """Raise the TraceError of a file that is a log, or of a known format, where a trace should be.

    It says what the log has, what is assumed of it, and the command that makes a trace of it. Chats are both,
    a trace and a log: a log only if answers are logged outside of them.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_chats = any(matches(text) for matches in SIGNS.values())
    kind = next((kind for kind in KINDS.values() if kind.detect(text)), None)
    if kind is not None:
        content = _content(kind, where)
        if kind is KINDS["openai"] and not content.requests:  # its signs are general
            refuse_known(head, where)
        if not is_chats or content.answered:
            hint = f"kvsim trace import {quote(where)} {'-o trace.jsonl' if content.requests else 'says why'}"
            hint = hint if content.requests or not content.said else ""
            raise TraceError(f"a log, no trace: {kind.help}", where=where, got=content.said, hint=hint)
    if not is_chats:
        refuse_known(head, where)
