"""The tokens of single rows of a trace, in any order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.tokens.config import PromptConfig
from kvcache_sim.workload.tokens.sequences import RowWriter, check_trace, row_batch
from kvcache_sim.workload.trace import Trace


def row_tokens(trace: Trace, config: PromptConfig, base_seed: int) -> Callable[[int], NDArray[np.uint32]]:
    """Return a function from a row's number to its tokens: those of `token_batches` for that row.

    ``base_seed`` is the seed of the generator ``dataset.prompt.corpus``. Raises as `check_trace` does.
    Memory: one start an id; a call costs one row.
    """
    check_trace(trace, config)
    writer = RowWriter(config, base_seed, trace.distinct_ids)

    def of_row(row: int) -> NDArray[np.uint32]:
        batch = row_batch(trace, row, row + 1)
        return writer.write(batch, np.empty(int(batch.lengths[0]), np.uint32)).tokens

    return of_row
