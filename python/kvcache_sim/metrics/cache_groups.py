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

#: junctions.parquet of a run over several cache groups: one row per request that hit less than some group
#: had, because another group had kept no checkpoint there.
JUNCTION_COLUMNS: dict[str, Column] = {
    "request": Column("int32", "request of the trace"),
    "machine": Column("int16", "machine that admitted it"),
    "junction_tokens": Column("int64", "prompt tokens that some group could have continued from"),
    "is_state": Column("int16", "1 where a state was not kept there, 0 where a window had moved on"),
}
_PREFIX = "groups."
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


def junction_rows(stores: Mapping[int, _core.GroupStore]) -> dict[str, ColumnData]:
    """Return the columns of ``JUNCTION_COLUMNS`` from the stores of the machines, by number."""
    rows = sorted(
        (request, machine, tokens, int(is_state))
        for machine, store in stores.items()
        for request, tokens, is_state in store.junctions()
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(JUNCTION_COLUMNS)
    return {
        name: np.array(values, np.dtype(column.dtype))
        for (name, column), values in zip(JUNCTION_COLUMNS.items(), columns, strict=True)
    }


def junctions_of(
    requests: Mapping[str, Any], junctions: Mapping[str, Any] | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each row of ``requests`` the tokens of its junction (0: none), and True if a state lacked.

    A junction counts on the machine that the row names.
    """
    number, machine = np.asarray(requests["request"]), np.asarray(requests["machine"])
    tokens, is_state = np.zeros(len(number), np.int64), np.zeros(len(number), np.bool_)
    if junctions is None or not len(junctions["request"]) or not len(number):
        return tokens, is_state
    order = np.argsort(number, kind="stable")
    asked = np.asarray(junctions["request"])
    positions = np.searchsorted(number[order], asked).clip(max=len(number) - 1)
    rows = order[positions]
    here = (number[rows] == asked) & (machine[rows] == np.asarray(junctions["machine"]))
    tokens[rows[here]] = np.asarray(junctions["junction_tokens"])[here]
    is_state[rows[here]] = np.asarray(junctions["is_state"])[here] != 0
    return tokens, is_state
