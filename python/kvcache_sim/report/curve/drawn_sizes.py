"""The capacities at which a picture of a curve needs its value: one for each pixel of a wide screen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PIXELS = 900


def drawn_sizes(most: int) -> NDArray[np.int64]:
    """Return capacities in 1 … ``most``, evenly spread on a log axis and all of them where they are few.

    The curve is known at every capacity, so nothing between two of these needs a guess: drawn as steps, the
    picture shows no value that was not computed.
    """
    return np.unique(np.geomspace(1, max(1, most), _PIXELS).astype(np.int64))
