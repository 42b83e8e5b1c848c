"""A request as a log tells it, and the notes of what a log has that becomes no request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Imported:
    """One request: its arrival in ns since the log's own origin, its lengths in tokens and its block ids.

    The ids name the first ``named_tokens`` tokens of prompt and answer; 0 stands for the prompt alone.
    ``measured`` is what the log says of its serving (``cached_tokens``, ``ttft_ms``), kept beside it.
    """

    arrival_ns: int
    input_tokens: int
    output_tokens: int
    ids: list[int]
    named_tokens: int = 0
    session: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


class Notes:
    """Counts what was left out of a log by reason, with the first line of each, and collects remarks."""

    def __init__(self) -> None:
        self.left_out: dict[str, tuple[int, int]] = {}
        self.remarks: dict[str, None] = {}

    def leave_out(self, line: int, reason: str) -> None:
        """Count one thing of the log that becomes no request."""
        count, first = self.left_out.get(reason, (0, line))
        self.left_out[reason] = (count + 1, first)

    def remark(self, text: str) -> None:
        """Say something of the whole log, once."""
        self.remarks[text] = None

    def lines(self, where: str) -> list[str]:
        """Return every note as a line for people."""
        found = [
            f"{where}:{first}: {count:,} left out: {reason}"
            for reason, (count, first) in self.left_out.items()
        ]
        return found + [f"{where}: {text}" for text in self.remarks]
