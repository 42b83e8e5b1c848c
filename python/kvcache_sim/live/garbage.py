"""Python's search for garbage, kept from holding up what has to be on time."""

from __future__ import annotations

import gc


def settle() -> None:
    """Look for garbage once, and from now on only among what comes later: all that is here stays."""
    gc.collect()
    gc.freeze()
    gc.collect()  # sets how many objects are many enough to look through all of them
