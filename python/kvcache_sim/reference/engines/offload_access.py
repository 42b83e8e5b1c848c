"""What a request did with a key of vLLM's CPU offloading tier."""

from __future__ import annotations

from enum import Enum, auto


class Access(Enum):
    """A request stored a key, used one that was there, or was refused its store."""

    STORED = auto()
    REUSED = auto()
    REFUSED = auto()
