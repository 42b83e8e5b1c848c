"""An engine's lookups and hits, inferred from its KV events.

Events report stored blocks, not hits. But a stored block follows a parent, and the parent and all blocks
before it were hits, unless they belong to the same request. So:

- Blocks stored after the tail of a request that stored there less than a pause ago continue that request.
  Two or more at a time are a chunk of its prompt while it has no answer; a single one is a block of its
  answer. Events of one batch that follow each other are stored at a time: SGLang sends one a page.
- Any other blocks are a lookup: the blocks before them were hits, they were misses (on a GPU; a block that
  another medium had was a hit there).

A request that hit its whole prompt and answered less than a block stores nothing and is invisible; so the
true hit rate is somewhat higher. A single stored block counts as a prompt's block although an answer may have
filled it. One cache group is followed, the first whose events name all blocks of a run; events that cannot be
placed are reported to ``leave_out``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent, Name

#: Longest time between two runs of blocks of one request: steps take less, the next turn more.
PAUSE_NS = 2 * NS_PER_S
_GPU = "GPU"


@dataclass(slots=True, eq=False)
class LookUp:
    """A request inferred from events: its blocks root first, of which the first ``found`` were cached."""

    at_ns: int
    blocks: list[Name]
    found: int
    #: Blocks of the prompt; the blocks after them belong to the answer.
    prompt: int
    #: Misses on the GPU that another medium had.
    found_below: int
    #: True if its parent blocks were stored before the capture started.
    beginning_unknown: bool = False
    last_ns: int = 0
    session: str = ""


@dataclass(slots=True)
class _Held:
    """A block that some medium has: its predecessor, and its copies by medium."""

    parent: Name | None
    copies: dict[str, int] = field(default_factory=dict)


def _runs(events: Iterable[KvEvent]) -> Iterator[KvEvent]:
    """Yield events, those that store the next blocks of the one before as one."""
    run: list[KvEvent] = []
    for event in events:
        if run and not _continues_run(run[-1], event):
            yield _run(run)
            run = []
        run.append(event)
    if run:
        yield _run(run)


def _run(run: list[KvEvent]) -> KvEvent:
    return replace(run[0], hashes=tuple(name for event in run for name in event.hashes))


def _continues_run(last: KvEvent, event: KvEvent) -> bool:
    """Return True if an event stores the blocks behind those of the last, and differs in nothing else."""
    stored = last.kind == "stored" and last.placed and last.hashes and event.parent == last.hashes[-1]
    return bool(stored) and event == replace(last, hashes=event.hashes, parent=event.parent)


class LookUps:
    """Tracks the events of one engine; ``take`` returns the lookups that start in a batch.

    A lookup grows while its request runs. ``leave_out`` takes the reason of each event that is not used.
    Memory: the engine's cached blocks, and one entry per running request.
    """

    def __init__(self, leave_out: Callable[[str], None], pause_ns: int = PAUSE_NS) -> None:
        self.block_size, self._pause_ns, self._leave_out = 0, pause_ns, leave_out
        self._group: int | None = None
        self._masked: set[int] = set()
        #: Blocks on the GPU now, and their maximum.
        self.held = self.most_held = 0
        #: True once a block has left the GPU: only then was it full, and ``most_held`` is its size.
        self.has_evicted = False
        self._blocks: dict[Name, _Held] = {}
        self._tails: dict[Name, LookUp] = {}

    def take(self, batch: KvBatch) -> list[LookUp]:
        """Process a batch; ValueError if blocks of two sizes occur."""
        started = []
        for reason in batch.unknown:
            self._leave_out(reason)
        for event in _runs(batch.events):
            if event.kind == "cleared":
                self._blocks.clear()
                self._tails.clear()
                self.held = 0
            elif not self._follows(event):
                self._leave_out(self._why_not(event))
            elif event.kind == "removed":
                self._removed(event)
            else:
                found = self._look_up(batch.at_ns, event) if event.medium == _GPU and event.hashes else None
                self._stored(event)
                started += [] if found is None else [found]
        self._forget(batch.at_ns)
        return started

    def _follows(self, event: KvEvent) -> bool:
        if self._group is None and event.kind == "stored" and event.placed:
            self._group = event.group
        return event.placed and event.group == (self._group or 0)

    def _why_not(self, event: KvEvent) -> str:
        self._masked |= set() if event.placed else {event.group}
        why = "masked by a window or a state: it names kept blocks alone, without their positions"
        if event.group not in self._masked:
            why = f"group {self._group or 0} is followed"
        return f"an event of cache group {event.group}, {why}"

    def _look_up(self, at_ns: int, event: KvEvent) -> LookUp | None:
        if self.block_size and event.block_size != self.block_size:
            raise ValueError(f"blocks of {event.block_size} and of {self.block_size} tokens")
        self.block_size = event.block_size
        tail = None if event.parent is None else self._tails.get(event.parent)
        same = tail is not None and event.session in ("", tail.session)
        if tail is not None and same and at_ns - tail.last_ns <= self._pause_ns:
            self._continues(tail, event, at_ns)
            return None
        before, known = self._path(event.parent)
        below = sum(self._is_below(name) for name in event.hashes)
        blocks = [*before, *event.hashes]
        found = LookUp(at_ns, blocks, len(before), len(blocks), below, not known, at_ns, event.session)
        self._tails[event.hashes[-1]] = found
        return found

    def _continues(self, request: LookUp, event: KvEvent, at_ns: int) -> None:
        assert event.parent is not None
        del self._tails[event.parent]
        if len(event.hashes) > 1 and request.prompt == len(request.blocks):
            request.prompt += len(event.hashes)
            request.found_below += sum(self._is_below(name) for name in event.hashes)
        request.blocks += event.hashes
        request.last_ns = at_ns
        self._tails[event.hashes[-1]] = request

    def _is_below(self, name: Name) -> bool:
        held = self._blocks.get(name)
        return held is not None and _GPU not in held.copies and bool(held.copies)

    def _path(self, last: Name | None) -> tuple[list[Name], bool]:
        """Return the blocks up to one, root first, and True if the first of them is a root.

        A block that a stranger's body has follow itself has no root.
        """
        path, at = dict[Name, None](), last
        while at is not None and at in self._blocks and at not in path:
            path[at] = None
            at = self._blocks[at].parent
        return [*path][::-1], at is None

    def _stored(self, event: KvEvent) -> None:
        parent = event.parent
        for name in event.hashes:
            held = self._blocks.setdefault(name, _Held(parent))
            held.copies[event.medium] = held.copies.get(event.medium, 0) + 1
            self.held += event.medium == _GPU
            parent = name
        self.most_held = max(self.most_held, self.held)

    def _removed(self, event: KvEvent) -> None:
        for name in event.hashes:
            held = self._blocks.get(name)
            if held is None or event.medium not in held.copies:
                continue
            held.copies[event.medium] -= 1
            if not held.copies[event.medium]:
                del held.copies[event.medium]
            if not held.copies:
                del self._blocks[name]
            if event.medium == _GPU:
                self.held -= 1
                self.has_evicted = True

    def _forget(self, now_ns: int) -> None:
        """Forget tails that can no longer be continued; called when there are many."""
        if len(self._tails) > 1 << 14:
            self._tails = {k: v for k, v in self._tails.items() if now_ns - v.last_ns <= self._pause_ns}
