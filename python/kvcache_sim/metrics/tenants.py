"""Each tenant's tokens, hits and latencies, and their fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.by_name import FINISHED, figures_by_name, summarize_by_name
from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure(
        "tenants.jain", "", "Jain's index (1984) of the tenants' tokens by weight: 1 is even, 1/n one has all"
    ),
    Figure(
        "tenants.service_gap_tokens",
        "tokens",
        "most that a tenant was behind another in finished tokens by weight, while both had requests",
    ),
    Figure("tenants.dropped_blocks", "blocks", "copies that quotas of cache dropped"),
    *figures_by_name("tenants", "tenant", ", waiting at the gateway included"),
)


def summarize_tenants(
    rows: Mapping[str, NDArray[Any]],
    tenant_of: NDArray[np.int32],
    names: Sequence[str],
    weights: Sequence[float],
    counters: Mapping[str, int],
) -> dict[str, Any]:
    """Return the group ``tenants`` of the summary, from rows of ``requests`` and each request's tenant.

    Cost: a walk of the requests for each pair of tenants.
    """
    done = rows["status"] == FINISHED
    tenants = tenant_of[rows["request"]]
    tokens = (rows["input_tokens"] + rows["output_tokens"]) * done
    by_name = summarize_by_name(rows, tenant_of, names)
    shares = [by_name[name]["tokens"] / weight for name, weight in zip(names, weights, strict=True)]
    squares = sum(share * share for share in shares)
    return {
        "tenants": {
            "jain": sum(shares) ** 2 / (len(shares) * squares) if squares else None,
            "service_gap_tokens": _service_gap(rows, tokens, tenants, weights),
            "dropped_blocks": counters.get("tenants.dropped_blocks", 0),
            "by_name": by_name,
        }
    }


def _service_gap(
    rows: Mapping[str, NDArray[Any]], tokens: NDArray[Any], tenants: NDArray[Any], weights: Sequence[float]
) -> float:
    """Return the largest lead of one tenant over another, reset whenever either has no request."""
    done = rows["finish_ns"] >= 0
    events = [
        *((int(at), 1, int(t), 0) for at, t in zip(rows["arrival_ns"][done], tenants[done], strict=True)),
        *(
            (int(at), 0, int(t), int(n))
            for at, t, n in zip(rows["finish_ns"][done], tenants[done], tokens[done], strict=True)
        ),
    ]
    count, gap = len(weights), 0.0
    open_requests, served = [0] * count, [0.0] * count
    since = [[0.0] * count for _ in range(count)]  # lead when both became active
    for _, arrives, tenant, service in sorted(events):
        if arrives:
            open_requests[tenant] += 1
            if open_requests[tenant] == 1:
                for other in range(count):
                    since[tenant][other] = served[tenant] - served[other]
                    since[other][tenant] = -since[tenant][other]
            continue
        served[tenant] += service / weights[tenant]
        for other in range(count):
            if other != tenant and open_requests[other]:
                gap = max(gap, abs(served[tenant] - served[other] - since[tenant][other]))
        open_requests[tenant] -= 1
    return gap
