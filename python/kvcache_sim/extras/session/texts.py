"""Texts of what differs first in prompts that broke, for those who ask: calls have hashes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvcache_sim.extras.session.bill import Bill
from kvcache_sim.extras.session.calls import Segment, blocks_of
from kvcache_sim.extras.session.load import log_files
from kvcache_sim.extras.session.prompts import first_difference
from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Naming, Notes
from kvcache_sim.workload.imports.turns import content_hash
from kvcache_sim.workload.prompts.body import json_text, member
from kvcache_sim.workload.readers.problems import located_errors, opened

#: Characters of a text that are shown.
_MOST = 300


class Differing(NamedTuple):
    """The texts of the first block that differs: in the prompt before, and in the one that broke."""

    was: str
    now: str


def differing_texts(paths: Sequence[str], bill: Bill) -> dict[str, Differing]:
    """Return by call the texts of what differs first, of breaks that the log itself shows."""
    calls = {call.id: call for call in bill.calls}
    blocks = {}
    for each in bill.breaks:
        before = calls.get(each.call.history.before)
        if each.predicted.differs and before is not None:
            was, now = (
                blocks_of(calls, call.id)[: -len(call.answer) or None] for call in (before, each.call)
            )
            same = first_difference(was, now)
            if same < len(was):
                blocks[each.call.id] = was[same : same + 1], now[same : same + 1]
    wanted = {block.name for pair in blocks.values() for side in pair for block in side}
    texts = dict[str, str]()
    for path, _ in log_files(paths, []):
        with located_errors(path):
            reading = Reading(Naming(16, b"-"), Notes(), skips=True)
            for _, row in each_document(opened(path, "log"), reading, lambda _, row: row):
                texts |= {name: text for name, text in _texts(row) if name in wanted}
    return {name: Differing(*(_text(side, texts) for side in pair)) for name, pair in blocks.items()}


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the hash and text of each part of a JSON value."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, str | dict):
            text = part if isinstance(part, str) else member(part, "text", "content", "output")
            yield content_hash(part), text if isinstance(text, str) else json_text(part)
        left += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _text(blocks: Sequence[Segment], texts: Mapping[str, str]) -> str:
    text = texts.get(blocks[0].name, "") if blocks else ""
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
