"""``--record all[:FROM..TO]``: the part of a run that is recorded in full."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.units import parse_time_ns

_EXPECTED = "all, or all:FROM..TO with times, such as all:60s..90s"


def parse_record(text: str) -> tuple[int, int] | None:
    """Return the window [from, to) in ns that is recorded in full; None for the empty text: no part."""
    if not text:
        return None
    word, colon, window = text.partition(":")
    if word != "all":
        raise UsageError("not a recording", where="--record", got=repr(text), expected=_EXPECTED)
    if not colon:
        return (0, 2**63 - 1)
    start, dots, end = window.partition("..")
    if not dots:
        raise UsageError("not a window", where="--record", got=repr(text), expected=_EXPECTED)
    bounds = (parse_time_ns(start), parse_time_ns(end))
    if bounds[0] >= bounds[1]:
        raise UsageError("empty window", where="--record", got=repr(text), expected=_EXPECTED)
    return bounds
