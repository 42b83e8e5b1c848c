"""Requests whose prompts share prefixes: the block ids of each, and the request that shows its answer."""

import numpy as np
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, KeyArrays


def random_forest() -> tuple[list[list[int]], list[int]]:
    """Return the ids of 24 requests, a forest with common prefixes, and their next turns."""
    draw = np.random.default_rng(7)
    rows: list[list[int]] = []
    following = []
    for r in range(24):
        base = rows[int(draw.integers(r))] if r and draw.random() < 0.75 else []
        keep = base[: int(draw.integers(len(base) + 1))]
        rows.append(keep + [1000 * r + i for i in range(int(draw.integers(1, 5)))])
        following.append(NO_NEXT_TURN)
    for r in range(0, 20, 3):  # answers of r are what r + 3 shows after its own prompt
        rows[r + 3] = rows[r] + [5000 + 10 * r, 5001 + 10 * r]
        following[r] = r + 3
    return rows, following


def comb_tree() -> tuple[list[list[int]], list[int]]:
    """Return two trunks, and short twigs at every depth of them: requests that part ever further from the root."""
    trunks = [[100 * t + i for i in range(5)] for t in (1, 2)]
    twigs = [[*trunk[:depth], 10 * trunk[0] + depth] for trunk in trunks for depth in range(1, 6)]
    rows = [trunks[0], *twigs[:5], trunks[1], *twigs[5:]]
    return rows, [NO_NEXT_TURN] * len(rows)


def key_arrays_of(forest: tuple[list[list[int]], list[int]]) -> KeyArrays:
    """Return what both kinds of keys are made of: two blocks an id."""
    rows, following = forest
    number: dict[int, int] = {}
    ids = np.array([number.setdefault(i, len(number)) for row in rows for i in row], np.uint32)
    offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
    full = np.array([2 * len(row) for row in rows], np.uint32)
    return offsets, ids, 2, full, np.array(following, np.uint32)
