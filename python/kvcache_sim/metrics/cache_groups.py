"""Blocks kept and lost by each cache group of a model, and the prompt tokens missed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.run import ColumnData

FIGURES = (
    Figure("cache_groups.<group>.kept_blocks", "blocks", "blocks of the group that could be found"),
    Figure("cache_groups.<group>.evicted_blocks", "blocks", "of these, blocks that were evicted"),
    Figure(
        "cache_groups.<group>.lost_not_kept_tokens",
        "tokens",
        "prompt tokens that another group found and this group did not, since it had kept nothing there",
    ),
    Figure(
        "cache_groups.<group>.lost_evicted_tokens",
        "tokens",
        "prompt tokens that another group found and this group did not, since it had evicted them",
    ),
)

#: junctions.parquet: one row per request that hit less than part of the cache had: some group where another
#: one had kept nothing, or a lower tier or machine from which the rest was not loaded.
JUNCTION_COLUMNS: dict[str, Column] = {
    "request": Column("int32", "request of the trace"),
    "machine": Column("int16", "machine that admitted it"),
    "junction_tokens": Column("int64", "prompt tokens that part of the cache had"),
    "cause": Column("int16", "0: a window had moved on; 1: no state was kept there; 2: not loaded"),
}
_PREFIX = "groups."
_NOT_LOADED = 2
_COUNTED = ("kept_blocks", "evicted_blocks", "lost_not_kept_tokens", "lost_evicted_tokens")


def group_counters(groups: GroupSettings, stores: Iterable[_core.GroupStore]) -> dict[str, int]:
    """Return the blocks that the groups of all machines kept and lost; groups of equal name are numbered."""
    found: Counter[str] = Counter()
    names = _names([group.name for group in groups.layout.groups])
    for store in stores:
        for name, counts in zip(names, store.by_group(), strict=True):
            found.update({f"{_PREFIX}{name}.{what}": n for what, n in zip(_COUNTED, counts, strict=True)})
    return dict(found)


def _names(kinds: Sequence[str]) -> list[str]:
    """Return each group's kind, with a number from the second group of a kind on."""
    before: Counter[str] = Counter()
    names = []
    for kind in kinds:
        before[kind] += 1
        names.append(kind if before[kind] == 1 else f"{kind}-{before[kind]}")
    return names


def summarize_groups(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return ``cache_groups`` of the summary in a mapping, which is empty for a cache of one group."""
    groups: dict[str, dict[str, int]] = {}
    for key, count in counters.items():
        if key.startswith(_PREFIX):
            name, what = key.removeprefix(_PREFIX).rsplit(".", 1)
            groups.setdefault(name, {})[what] = count
    return {"cache_groups": groups} if groups else {}


def junction_rows(
    groups: Mapping[int, _core.GroupStore], trees: Mapping[int, _core.Store], block_size_tokens: int
) -> dict[str, ColumnData] | None:
    """Return the columns of ``JUNCTION_COLUMNS`` from the stores of the machines, by number.

    None if no machine has groups and all that was found was loaded.
    """
    rows = sorted(
        (request, machine, tokens, int(is_state))
        for machine, store in groups.items()
        for request, tokens, is_state in store.junctions()
    )
    rows += sorted(
        (request, machine, blocks * block_size_tokens, _NOT_LOADED)
        for machine, store in trees.items()
        for request, blocks in store.not_loaded()
    )
    if not rows and not groups:
        return None
    columns = list(zip(*rows, strict=True)) or [()] * len(JUNCTION_COLUMNS)
    return {
        name: np.array(values, np.dtype(column.dtype))
        for (name, column), values in zip(JUNCTION_COLUMNS.items(), columns, strict=True)
    }


def junctions_of(
    requests: Mapping[str, Any], junctions: Mapping[str, Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return for each row of ``requests`` the tokens of its junction (0: none), and its cause.

    A junction counts on the machine that the row names.
    """
    number, machine = np.asarray(requests["request"]), np.asarray(requests["machine"])
    tokens, cause = np.zeros(len(number), np.int64), np.zeros(len(number), np.uint8)
    if junctions is None or not len(junctions["request"]) or not len(number):
        return tokens, cause
    order = np.argsort(number, kind="stable")
    asked = np.asarray(junctions["request"])
    positions = np.searchsorted(number[order], asked).clip(max=len(number) - 1)
    rows = order[positions]
    here = (number[rows] == asked) & (machine[rows] == np.asarray(junctions["machine"]))
    tokens[rows[here]] = np.asarray(junctions["junction_tokens"])[here]
    cause[rows[here]] = np.asarray(junctions["cause"])[here]
    return tokens, cause
