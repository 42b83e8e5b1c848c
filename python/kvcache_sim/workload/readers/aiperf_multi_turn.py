"""AIPerf's conversations: one line has a session's turns, each sent some time after the last one's answer.

Source: aiperf 0.13.0, dataset/loader/multi_turn.py and models.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.agent_rows import problem, time_ns, whole
from kvcache_sim.workload.readers.answers_unknown import ANSWER_TOKENS, columns_without_answers, stand_in
from kvcache_sim.workload.readers.chained_text import TextRows
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat
from kvcache_sim.workload.readers.json_stream import objects
from kvcache_sim.workload.trace import OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_SIZE = 16
_MEDIA = ("image", "images", "image_uuids", "audio", "audios", "video", "videos")
#: Members that a first system turn may not have: it becomes part of every prompt and is no request itself.
_SENT = ("timestamp", "delay", "output_length", "extra")


class _Sessions:
    """Conversations by name: the text of each so far, its last request and that request's timestamp."""

    def __init__(self, rows: TextRows) -> None:
        self._rows = rows
        self._said: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}
        self._last: dict[str, tuple[int, int]] = {}
        self.waits: list[list[int]] = []
        self.unlimited = 0

    def add(self, line: int, name: str, turns: list[Any]) -> None:
        """Add a line's turns to its conversation; raises ``TraceProblem``."""
        texts = [_text(line, turn) for turn in turns]
        if name not in self._numbers and _is_prefix(turns):
            self._said[name] = self._rows.encode(texts.pop(0))
            turns = turns[1:]
        for turn, text in zip(turns, texts, strict=True):
            self._turn(line, name, turn, self._rows.encode(text))

    def _turn(self, line: int, name: str, turn: dict[str, Any], text: bytes) -> None:
        prompt = self._said.get(name, b"") + text
        tokens = ANSWER_TOKENS
        if turn.get("output_length") is None:
            self.unlimited += 1
        else:
            tokens = whole(line, turn, ("output_length",), 1)
        last = self._last.get(name)
        if last is not None and turn.get("timestamp") is not None:
            raise problem(line, "timestamp", turn["timestamp"], "delay: a later turn follows an answer")
        session = self._numbers.setdefault(name, len(self._numbers))
        if session == len(self._rows.session_names):
            self._rows.session_names.append(name)
        number = len(self.waits)
        self._rows.add(prompt, tokens, session, 0 if last is None else last[1] + 1)
        wait_ns = time_ns(line, turn, ("timestamp", "delay"), NS_PER_MS)
        self._rows.arrival[-1] = wait_ns if last is None else 0
        self._rows.think[-1] = OPEN_LOOP if last is None else wait_ns
        self.waits.append([] if last is None else [last[0]])
        self._last[name] = (number, self._rows.turn[-1])
        answer = stand_in(f"{name}\0{self._rows.turn[-1]}", tokens, self._rows.per_token)
        self._said[name] = prompt + answer


def _is_prefix(turns: list[Any]) -> bool:
    """Return True if the first turn is a system prompt, without request members, before another role."""
    roles = [turn.get("role") for turn in turns[:2]]
    said = any(turns[0].get(name) is not None for name in _SENT)
    return len(turns) > 1 and roles[0] == "system" != roles[1] and not said


def _text(line: int, turn: Any) -> str:
    if not isinstance(turn, dict):
        raise problem(line, "turns", turn, "objects of text")
    media = next((name for name in _MEDIA if turn.get(name) is not None), None)
    if media is not None:
        raise problem(line, media, turn[media], "text alone")
    texts = [turn["text"]] if turn.get("text") is not None else turn.get("texts")
    parts: list[str] = []
    for text in texts if isinstance(texts, list) else [None]:
        contents = text.get("contents") if isinstance(text, dict) else [text]
        if not isinstance(contents, list) or not all(isinstance(one, str) for one in contents):
            raise problem(line, "text", text, "a text")
        parts += contents
    return "".join(parts)


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    rows = TextRows(settings, BLOCK_SIZE)
    sessions = _Sessions(rows)
    line = 0
    for number, (line, value) in enumerate(objects(source)):
        turns = value.get("turns") if isinstance(value, dict) else None
        name = value.get("session_id") if isinstance(value, dict) else None
        if not isinstance(turns, list) or not turns:
            raise problem(line, "turns", turns, "the turns of a conversation")
        if name is not None and not isinstance(name, str):
            raise problem(line, "session_id", name, "a text")
        sessions.add(line, f"line {number + 1}" if name is None else name, turns)
    columns = columns_without_answers(rows, settings, sessions.waits, sessions.unlimited)
    columns["lines"] = line
    return columns


FORMAT = TraceFormat(
    "aiperf-multi-turn",
    "JSON lines: session_id, turns of text, delay or timestamp (ms), output_length: texts, hashed here",
    SIGNS["aiperf-multi-turn"],
    _read,
    BLOCK_SIZE,
)
