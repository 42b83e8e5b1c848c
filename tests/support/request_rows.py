"""Rows of ``requests`` by hand."""

import numpy as np
from kvcache_sim.metrics.columns import REQUEST_COLUMNS


def rows(count: int, **given: object) -> dict[str, np.ndarray]:
    """Return rows of requests: zeros, but for the columns that are given."""
    found = {name: np.zeros(count, column.dtype) for name, column in REQUEST_COLUMNS.items()}
    found["request"] = np.arange(count, dtype=np.int32)
    found["session"] -= 1
    found["decode_machine"] -= 1
    return found | {name: np.array(value, REQUEST_COLUMNS[name].dtype) for name, value in given.items()}
