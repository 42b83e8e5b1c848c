"""Members of a trace's rows that are part of every block's key: adapters, tenants' salts, images.

An engine hashes them with a block's tokens, so equal texts are shared only where they are equal too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.workload.trace import Trace

#: One thing in a block's key: from which token on, the member, and its value as JSON.
_Part = tuple[int, str, str]


def with_extra_keys(trace: Trace, members: Sequence[str]) -> Trace:
    """Return the trace with ids that also name the given members of their rows, in ``Trace.extra``.

    A text, a number or true (``lora``, ``cache_salt``) counts from the first block on, as does each text of a
    list; an object of a list, ``{"hash": "3f..", "offset": 512}`` (an image), from the block of its token
    ``offset`` on. A row without the member, or with null, has none. Where all rows have equal ones nothing
    changes. Ids lose their names where something does. Raises UsageError for a member that no row has,
    TraceError for a value that can be no key. Cost: each row's members are read as JSON.
    """
    rows = [json.loads(f"{{{text}}}") if text else {} for text in trace.extra] or [{}] * len(trace)
    for name in members:
        if all(row.get(name) is None for row in rows):
            raise UsageError(
                f"no row has the member {name!r}", where=trace.source, expected="a member of the JSON rows"
            )
    keys = [_parts(row, members, trace, number) for number, row in enumerate(rows)]
    if len({tuple(key) for key in keys}) == 1 and all(part[0] == 0 for part in keys[0]):
        return trace
    known: dict[tuple[tuple[str, str], ...], int] = {}
    codes = np.empty(len(trace.block_ids), np.int64)
    for number, key in enumerate(keys):
        start, end = int(trace.id_offsets[number]), int(trace.id_offsets[number + 1])
        for begin in sorted({0, *(part[0] // trace.block_size for part in key)}):
            held = tuple(part[1:] for part in key if part[0] // trace.block_size <= begin)
            codes[min(start + begin, end) : end] = known.setdefault(held, len(known))
    ids = codes * trace.distinct_ids + trace.block_ids
    return replace(trace, block_ids=_by_first_appearance(ids), id_names=np.empty(0, np.int64))


def _parts(row: dict[str, Any], members: Sequence[str], trace: Trace, number: int) -> list[_Part]:
    found: list[_Part] = []
    for name in members:
        value = row.get(name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and isinstance(one.get("offset"), int) and one["offset"] >= 0:
                rest = {key: part for key, part in one.items() if key != "offset"}
                found.append((one["offset"], name, json.dumps(rest, sort_keys=True)))
            elif isinstance(one, (str, int, float)):
                found.append((0, name, json.dumps(one)))
            elif one is not None:
                raise TraceError(
                    f"{name} of request {number} is no key",
                    where=trace.source,
                    got=json.dumps(value)[:60],
                    expected="a text, a number, or a list of texts or of objects with offset",
                )
    return found


def _by_first_appearance(ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return ids numbered in order of first appearance."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.uint32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.uint32)
    return rank[inverse]
