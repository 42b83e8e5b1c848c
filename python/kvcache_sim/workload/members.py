"""Row members without a column: parts of block keys, models, adapters, hints, tenants.

An engine hashes these parts of a key together with a block's tokens, so equal texts are shared only if these
parts are equal too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value, field
from kvcache_sim.workload.rows import by_first_appearance
from kvcache_sim.workload.trace import NOT_GIVEN, Trace

#: One part of a block's key: its first token, the member, and its value as JSON.
_Part = tuple[int, str, str]


def with_extra_keys(trace: Trace, members: Sequence[str]) -> Trace:
    """Return the trace with ids that include the given members of their rows, from ``Trace.extra``.

    A text, a number or true (``lora``, ``cache_salt``) applies from the first block on, as does each text of
    a list; an object of a list, ``{"hash": "3f..", "offset": 512}`` (an image), from the block of its token
    ``offset`` on. A row without the member, or with null, has none. If all rows have equal members nothing
    changes; otherwise ids lose their names. Raises UsageError for a member that no row has, TraceError for a
    value that cannot be a key. Cost: each row's members are read as JSON.
    """
    rows = _rows(trace)
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
    return replace(trace, block_ids=by_first_appearance(ids), id_names=np.empty(0, np.int64))


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


def with_models(trace: Trace, member: str, names: Sequence[str]) -> Trace:
    """Return the trace with each request's model, as an index of ``names``, from ``Trace.extra``.

    Raises TraceError for a request without such a model. Cost: each row's members are read as JSON.
    """
    number = {name: position for position, name in enumerate(names)}
    found = np.empty(len(trace), np.int32)
    for request, value in enumerate(row.get(member) for row in _rows(trace)):
        if str(value) not in number or value is None:
            raise TraceError(
                f"request {request} names no model of the fleet",
                where=trace.source,
                got=f"{member}: {json.dumps(value)[:60]}",
                expected=f"one of {', '.join(names)}",
            )
        found[request] = number[str(value)]
    return replace(trace, model=found)


def with_adapters(trace: Trace, member: str) -> Trace:
    """Return the trace with each request's adapter as part of its block keys, and the adapters' names.

    A row without the member, or with null, uses no adapter. Raises UsageError for a member that no row has.
    Cost: each row's members are read as JSON.
    """
    stated = (row.get(member) for row in _rows(trace))
    names = list(dict.fromkeys(str(value) for value in stated if value is not None))
    return replace(with_extra_keys(trace, (member,)), adapter_names=names)


def _rows(trace: Trace) -> list[dict[str, Any]]:
    """Return the members of each row that have no column."""
    return [json.loads(f"{{{text}}}") if text else {} for text in trace.extra] or [{}] * len(trace)


#: Valid hints of a row; a number is a time to live in seconds.
NOTHING, CLOSE, DEMOTE = 0, 1, 2
_SAID = {None: NOTHING, "close": CLOSE, "demote": DEMOTE}
_MOST_S = 1e9


class HintRules(Value):
    """Row members with hints, and the hint of each tool for rows without one."""

    member: str = "retention"
    #: The member with the tool call that ends a request.
    tool: str = "tool"
    ttl_s: Mapping[str, float] = field(default_factory=dict)


def with_retention(trace: Trace, rules: HintRules) -> Trace:
    """Return the trace with the hints of its rows, from ``Trace.extra``.

    A hint is ``close``, ``demote`` or seconds to live. Raises UsageError if no row has a hint, TraceError for
    another value. Cost: each row's members are read as JSON.
    """
    rows = _rows(trace)
    tools = {row.get(rules.tool) for row in rows if isinstance(row.get(rules.tool), str)}
    if all(row.get(rules.member) is None for row in rows) and not tools & rules.ttl_s.keys():
        raise UsageError(
            f"no row has the member {rules.member!r}, or a tool of retention.ttl_s", where=trace.source
        )
    hints = np.zeros(len(trace), np.int8)
    live_ns = np.full(len(trace), NOT_GIVEN, np.int64)
    for number, row in enumerate(rows):
        value: Any = row.get(rules.member)
        tool = str(row.get(rules.tool))
        if _is_time(value):
            live_ns[number] = round(value * NS_PER_S)
        elif value is None:
            if tool in rules.ttl_s:
                live_ns[number] = round(rules.ttl_s[tool] * NS_PER_S)
        elif isinstance(value, str) and value in _SAID:
            hints[number] = _SAID[value]
        else:
            pinned = isinstance(value, dict) and "pin" in value
            raise TraceError(
                f"{rules.member} of request {number} is no hint",
                where=trace.source,
                got=json.dumps(value)[:60],
                expected="close, demote or seconds",
                hint="pins were dropped in 0.2" if pinned else "",
            )
    return replace(trace, retention=hints, live_ns=live_ns)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST_S


#: Tenant of requests without a name.
NO_MEMBER = "nobody"


def with_tenants(trace: Trace, member: str, isolated: bool) -> Trace:
    """Return the trace with each request's tenant, numbered by first appearance, from ``Trace.extra``.

    ``isolated``: tenants share no blocks, since the tenant's name is part of every key. Raises UsageError for
    a member that no row has. Cost: each row's members are read as JSON.
    """
    values = [row.get(member) for row in _rows(trace)]
    if len(values) and all(value is None for value in values):
        raise UsageError(
            f"no row has the member {member!r}",
            where=trace.source,
            expected="tenants.field: a member of the JSON rows",
        )
    stated = [NO_MEMBER if value is None else str(value) for value in values]
    names = list(dict.fromkeys(stated))
    number = {name: position for position, name in enumerate(names)}
    if isolated:
        trace = with_extra_keys(trace, (member,))
    tenant = np.array([number[name] for name in stated], np.int32)
    return replace(trace, tenant=tenant, tenant_names=names)
