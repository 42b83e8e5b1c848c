"""What each request names by a member of its row: a model, an adapter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kvcache_sim.errors import TraceError
from kvcache_sim.workload.extra_keys import with_extra_keys
from kvcache_sim.workload.trace import Trace


def with_models(trace: Trace, member: str, names: Sequence[str]) -> Trace:
    """Return the trace with each request's model, as an index of ``names``, from ``Trace.extra``.

    Raises TraceError for a request that names no such model. Cost: each row's members are read as JSON.
    """
    number = {name: place for place, name in enumerate(names)}
    found = np.empty(len(trace), np.int32)
    for request, value in enumerate(_values(trace, member)):
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
    """Return the trace with each request's adapter as part of its blocks' keys, and the adapters' names.

    A row without the member, or with null, asks for none. Raises UsageError for a member that no row has.
    Cost: each row's members are read as JSON.
    """
    told = [None if value is None else str(value) for value in _values(trace, member)]
    names = list(dict.fromkeys(name for name in told if name is not None))
    return replace(with_extra_keys(trace, (member,)), adapter_names=names)


def _values(trace: Trace, member: str) -> list[object]:
    if not trace.extra:
        return [None] * len(trace)
    return [json.loads(f"{{{text}}}").get(member) if text else None for text in trace.extra]
