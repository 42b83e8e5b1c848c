"""The interval of a held rate over requests.

The load of some requests is the time that they spend in the machines for each second in which they arrive;
the rate held is inverse to it. Its error follows from batches of time, as many as ``compare`` has. Rates of
arrivals drift over a trace, so each batch is compared with the next (von Neumann, Distribution of the ratio
of the mean square successive difference to the variance, Ann. Math. Stat. 12, 1941), not with the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.batches import batch_count

#: 97.5 % quantiles of Student's t distribution for the degrees of freedom of 10 and of 20 batches.
_T = {10: 2.262, 20: 2.093}


def rate_spread(rows: Mapping[str, NDArray[Any]]) -> float | None:
    """Return the factor to each end of the 95 % interval of a held rate, from finished requests.

    None for too few requests, or for a batch whose requests all arrive at once.
    """
    count = batch_count(len(rows["arrival_ns"]))
    if not count:
        return None
    order = np.argsort(rows["arrival_ns"], kind="stable")
    arrival_ns, finish_ns = rows["arrival_ns"][order], rows["finish_ns"][order]
    batch = np.arange(len(order) - 1) * count // (len(order) - 1)
    stayed, passed = (
        np.bincount(batch, times_ns.astype(float), count)
        for times_ns in ((finish_ns - arrival_ns)[1:], np.diff(arrival_ns))
    )
    if not (stayed > 0).all() or not (passed > 0).all():
        return None
    steps = np.diff(np.log(stayed / passed))
    return math.exp(_T[count] * math.sqrt(float((steps**2).mean()) / 2 / count))
