"""Interface of a kind of log: name, detection and reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.imports.naming import Imported, Logged, Naming, Notes
from kvcache_sim.workload.imports.source import lines_of, problem
from kvcache_sim.workload.imports.turns import Turn
from kvcache_sim.workload.prompts.body import BodyError

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource


#: (line, request) of each request, in any order; ``write`` names the blocks of those with texts or tokens,
#: and makes requests of the turns of conversations.
Requests = Iterator[tuple[int, Imported | Logged | Turn]]

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Reading:
    """Settings of reading a log: block naming, and the receiver of notes; ``skips``: bad rows are counted.

    ``answer_tokens``: tokens of an answer whose length the log does not say; None leaves its request out.
    ``own_block``: True until a log that has a block size of its own has set it.
    """

    naming: Naming
    notes: Notes
    skips: bool = False
    answer_tokens: int | None = None
    own_block: bool = False

    def use_block_size(self, number: int, size: int) -> None:
        """Set the block size to the log's own; TraceProblem if another one was asked for or came before."""
        if self.own_block:
            self.own_block, self.naming.block_size = False, size
        if size != self.naming.block_size:
            expected = f"--block-size {size} (it is {self.naming.block_size})"
            raise problem(number, "another block size", size, expected)

    def assumed_answer(self) -> int:
        """Return the tokens of an answer in a log that has none, which is noted."""
        tokens = self.answer_tokens or 1
        self.notes.remark(f"the log has no answers: {tokens} output token(s) each (--answer-tokens)")
        return tokens

    def skip(self, number: int, bad: TraceProblem | BodyError) -> None:
        """Count a bad row; raise the problem of its line unless bad rows are skipped."""
        if isinstance(bad, BodyError):
            bad = problem(number, bad.what, bad.got, bad.expected)
        if not self.skips:
            raise bad
        self.notes.leave_out(number, f"a bad row: {bad.args[3]}")


@dataclass(frozen=True, slots=True)
class LogKind:
    """One kind of log; ``read`` raises TraceProblem for a line of another kind."""

    name: str
    help: str
    #: True if the first (decompressed) bytes of a file are of this kind.
    detect: Callable[[bytes], bool]
    read: Callable[[TraceSource, Reading], Requests]


def each_line(
    source: TraceSource,
    reading: Reading,
    take: Callable[[int, Any], _Found | None],
    lines: Callable[[TraceSource], Iterator[tuple[int, Any]]] = lines_of,
) -> Iterator[tuple[int, _Found]]:
    """Yield the result of ``take`` for each line; a bad line is refused, or counted if they are skipped.

    ``take`` raises TraceProblem, or ValueError or SyntaxError for a number or a list that is none.
    """
    for number, text in lines(source):
        try:
            found = take(number, text)
        except (TraceProblem, BodyError) as bad:
            reading.skip(number, bad)
            continue
        except (ValueError, SyntaxError) as error:
            reading.skip(number, problem(number, f"unreadable: {error}", text))
            continue
        if found is not None:
            yield number, found
