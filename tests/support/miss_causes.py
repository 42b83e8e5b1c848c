"""Small models of the causes of misses, block by block: of a replay, and of a timed run.

They share no code with the core: ``MissCauses`` sorts the misses of a replay, ``timed_miss_tokens`` answers
what
``_core.timed_miss_tokens`` does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from kvcache_sim.replay.engine_requests import Key
from kvcache_sim.replay.miss_causes import MISS_CAUSES
from numpy.typing import NDArray

#: The names of the causes, in the order of the columns.
CAUSES = tuple(cause.name for cause in MISS_CAUSES)


@dataclass(slots=True)
class MissCauses:
    """Counts misses by cause, block by block."""

    block_size: int
    seen: set[Key] = field(default_factory=set)
    #: Ids after which some request continued with another id.
    continued: set[object] = field(default_factory=set)
    #: The last request that evicted a key.
    evicted_by: dict[Key, int] = field(default_factory=dict)
    #: Tokens by cause, a row a request.
    tokens: list[list[int]] = field(default_factory=list)
    #: Request, evicting request, blocks: equal neighbours are one entry.
    evicted_misses: list[list[int]] = field(default_factory=list)

    def count(self, n: int, keys: Sequence[Key], hits: int, resident: Callable[[Key], bool]) -> None:
        """Count the misses of a prompt of ``n`` tokens whose blocks that may hit are ``keys``."""
        request = len(self.tokens)
        counts = dict.fromkeys(CAUSES, 0)
        counts["shorter"] = n - len(keys) * self.block_size
        novelty, before = "", "not_admitted"
        for block in range(hits, len(keys)):
            key = keys[block]
            if key not in self.seen:
                novelty = novelty or self._novelty(keys, block)
                before = novelty
            elif not resident(key):
                before = "evicted" if key in self.evicted_by else "not_admitted"
                if before == "evicted":
                    self.evicted_misses.append([request, self.evicted_by[key], 1])
            counts[before] += self.block_size
        self.tokens.append([counts[cause] for cause in CAUSES])

    def _novelty(self, keys: Sequence[Key], block: int) -> str:
        key = keys[block]
        starts_an_id = len(key) == 2 and key[1] == 0 and block > 0
        return "diverged" if starts_an_id and keys[block - 1][0] in self.continued else "never_seen"

    def learn(self, keys: Sequence[Key]) -> None:
        """Take notice of the blocks of a request."""
        named = [key for key in keys if len(key) == 2]
        for key in named:
            # a continuation may name the middle of an id whose start was never shown: no request reaches it
            if key[1] == 0 or (key[0], int(key[1]) - 1) in self.seen:
                self.seen.add(key)
        self.continued.update(a[0] for a, b in pairwise(named) if a[0] != b[0])


_COLUMNS = {cause.name: column for column, cause in enumerate(MISS_CAUSES)}


@dataclass(slots=True)
class _Use:
    """Times of one position on one machine: when it was ready, and when a request last used it."""

    ready_ns: int
    used_ns: int


@dataclass(slots=True)
class _History:
    """Positions shown by the requests admitted so far, in the tree of all paths."""

    #: (position before, id) → position; the root is -1.
    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    #: By (machine, position).
    uses: dict[tuple[int, int], _Use] = field(default_factory=dict)
    #: Positions that any machine has shown, and positions that some request continued from.
    shown: set[int] = field(default_factory=set)
    continued: set[int] = field(default_factory=set)

    def path(self, ids: list[int], before: int = -1) -> list[int]:
        """Return the positions of ids that follow each other."""
        positions = []
        for one in ids:
            before = self.positions.setdefault((before, one), len(self.positions))
            positions.append(before)
        return positions

    def show(self, machine: int, path: list[int], ready_ns: int, used_ns: int) -> None:
        """Enter a path that a request computes or reuses on a machine."""
        for index in path:
            known = self.uses.setdefault((machine, index), _Use(ready_ns, used_ns))
            known.ready_ns = min(known.ready_ns, ready_ns)
            known.used_ns = max(known.used_ns, used_ns)
        self.shown.update(path)
        self.continued.update(path[:-1])


def timed_miss_tokens(
    id_offsets: NDArray[np.int64],
    block_ids: NDArray[np.uint32],
    id_tokens: int,
    block_size_tokens: int,
    continuation: NDArray[np.int32],
    finished: NDArray[np.bool_],
    machine: NDArray[np.int64],
    decode_machine: NDArray[np.int64],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    cached_tokens: NDArray[np.int64],
    admitted_ns: NDArray[np.int64],
    first_token_ns: NDArray[np.int64],
    finish_ns: NDArray[np.int64],
    junction_tokens: NDArray[np.int64],
    junction_cause: NDArray[np.uint8],
    kept: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what ``_core.timed_miss_tokens`` returns. Cost: a dictionary look-up an id."""
    n = len(finished)
    tokens = np.zeros((n, len(MISS_CAUSES)), np.int64)
    idle_ns = np.full(n, -1, np.int64)
    history = _History()

    def ids(i: int) -> list[int]:
        return [int(one) for one in block_ids[id_offsets[i] : id_offsets[i + 1]]]

    for i in np.lexsort((np.arange(n), admitted_ns)).tolist():
        if not finished[i]:
            continue
        path, on, prompt, now = history.path(ids(i)), int(machine[i]), int(input_tokens[i]), admitted_ns[i]
        at = int(cached_tokens[i])
        end = max((prompt - 1) // block_size_tokens * block_size_tokens, at, int(junction_tokens[i]))
        tokens[i, _COLUMNS["shorter"]] = prompt - end
        if junction_tokens[i] > at:
            cause = ("window_moved_on", "no_checkpoint", "not_loaded")[junction_cause[i]]
            tokens[i, _COLUMNS[cause]] = junction_tokens[i] - at
            at = int(junction_tokens[i])
        novelty, judged, in_part = "", -1, False
        while at < end:
            k = at // id_tokens
            block = at // block_size_tokens
            if (
                block != judged
            ):  # blocks that no prompt has shown whole, judged once from their first missed id on
                judged, last = block, ((block + 1) * block_size_tokens - 1) // id_tokens
                in_part = any(n >= len(path) or path[n] not in history.shown for n in range(k, last + 1))
            upto = min((k + 1) * id_tokens, end) if k < len(path) else end
            upto = min(upto, (block + 1) * block_size_tokens) if k < len(path) else upto
            known = history.uses.get((on, path[k])) if k < len(path) else None
            if in_part and k < len(path) and path[k] in history.shown:
                cause = "partial_block"
            elif known is not None and known.ready_ns > now:
                cause = "not_ready"
            elif known is not None:
                cause = "evicted" if kept else "not_admitted"
                idle_ns[i] = max(idle_ns[i], now - known.used_ns, 0)
            elif k < len(path) and path[k] in history.shown:
                cause = "elsewhere"
            else:
                parts = 0 < k < len(path) and path[k - 1] in history.continued
                novelty = cause = novelty or ("diverged" if parts else "never_seen")
            tokens[i, _COLUMNS[cause]] += upto - at
            at = upto
        last = int(finish_ns[i])
        whole = max(-(-(prompt // block_size_tokens * block_size_tokens) // id_tokens), prompt // id_tokens)
        answers = int(decode_machine[i]) if decode_machine[i] >= 0 else on
        for one in {on, answers}:
            history.show(one, path[:whole], int(first_token_ns[i]), last)
        if continuation[i] >= 0 and whole * id_tokens <= prompt:
            # an answer has the next turn's ids only where no block is named by an id of its own
            own, whole = prompt // id_tokens, (prompt + max(int(output_tokens[i]), 1) - 1) // id_tokens
            answer = history.path(ids(int(continuation[i]))[own:whole], path[own - 1] if own else -1)
            history.show(answers, answer, last, last)
    return tokens, idle_ns
