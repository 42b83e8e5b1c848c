"""Who sent each request, by a member of the trace's rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.workload.extra_keys import with_extra_keys
from kvcache_sim.workload.trace import Trace

#: Whose requests name nobody.
NOBODY = "nobody"


def with_tenants(trace: Trace, member: str, isolated: bool) -> Trace:
    """Return the trace with each request's tenant, numbered by first appearance, from ``Trace.extra``.

    ``isolated``: no tenant finds another's blocks, since its name is part of every key. Raises UsageError
    for a member that no row has. Cost: each row's members are read as JSON.
    """
    rows = [json.loads(f"{{{text}}}") if text else {} for text in trace.extra] or [{}] * len(trace)
    values = [row.get(member) for row in rows]
    if len(values) and all(value is None for value in values):
        raise UsageError(
            f"no row has the member {member!r}",
            where=trace.source,
            expected="tenants.field: a member of the JSON rows",
        )
    told = [NOBODY if value is None else str(value) for value in values]
    names = list(dict.fromkeys(told))
    number = {name: place for place, name in enumerate(names)}
    if isolated:
        trace = with_extra_keys(trace, (member,))
    tenant = np.array([number[name] for name in told], np.int32)
    return replace(trace, tenant=tenant, tenant_names=names)
