"""Arguments of any value for the calls of a store, by the names of their parameters."""

import inspect
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

NUMBERS = st.integers(-2, 9) | st.sampled_from(
    [1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1, 1 << 64]
)


def arguments(owner: type[Any], name: str, draw: Callable[[], int], handles: list[int]) -> list[object]:
    """Draw the arguments of a call; where it takes a handle, often one that a call has returned."""
    made: list[object] = []
    for parameter in list(inspect.signature(getattr(owner, name)).parameters)[1:]:
        one = draw()
        handle = handles[one % len(handles)] if handles and one >= 0 else one
        if parameter in ("lease", "move", "claim", "hold"):
            made.append(handle)
        elif parameter == "part":
            made.append((one, draw()))
        elif parameter == "wanted":
            made.append([(handle, draw())] + ([(handles[0], draw())] if handles and one % 2 else []))
        elif parameter == "leases":
            made.append([handle])
        elif parameter == "after":
            made.append([one])
        elif parameter == "ready" and name == "commit":
            made.append(None if one == 0 else (one, draw()))
        elif parameter in ("source", "ready"):
            made.append(None if one == 0 else one)
        else:
            made.append(one)
    return made
