"""The split into rows to fit and rows held out, and the list of files a shipped set may be fitted to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.rng import stream

#: The only files that a shipped set is fitted to: kernel and iteration timings. No end-to-end run is among
#: them; those are for judging.
TRAIN_FILES = (
    "attention_skew_rtx.csv.gz",
    "iter_b300_moe.csv.gz",
    "iter_b300_qwen3_32b.csv",
    "iter_composed_a100_h100.csv",
    "kernels_rtx.csv.gz",
)

#: The seed and the share of every shipped split.
SPLIT_SEED = 20261121
HELD_OUT_SHARE = 0.2
#: Where neighbours in the file are alike, whole stretches are held out too: so many, each so long a share.
BLOCKS = 50
BLOCKS_HELD_OUT = 5


def check_train_file(name: str) -> None:
    """Raise UsageError when a file is not on the train list."""
    if name not in TRAIN_FILES:
        raise UsageError(
            "not a file of the train split", got=name, expected="one of " + ", ".join(TRAIN_FILES)
        )


def held_out(rows: int, share: float = HELD_OUT_SHARE, seed: int = SPLIT_SEED) -> NDArray[np.bool_]:
    """Return the mask of the rows kept from the fit: each with probability ``share``, by its index alone."""
    return stream(seed, "calibration.held-out").random(rows) < share


def held_out_blocks(rows: int, seed: int = SPLIT_SEED) -> NDArray[np.bool_]:
    """Return the mask of five of fifty contiguous stretches of a file of ``rows`` rows."""
    chosen = stream(seed, "calibration.held-out-blocks").choice(BLOCKS, BLOCKS_HELD_OUT, replace=False)
    return np.isin(np.arange(rows) * BLOCKS // max(rows, 1), chosen)
