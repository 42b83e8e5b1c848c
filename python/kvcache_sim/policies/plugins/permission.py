"""Permission to import plug-ins: a plug-in is code, and a finished run is data.

``load_plugin`` is the only function that imports one, and it asks here first. Commands that simulate or check
may load the plug-ins that their scenario or options name. Commands that read run inside ``names_only``: names
of plug-ins are text there. ``KVSIM_NO_PLUGINS=1`` (``--no-plugins``) refuses all, in child processes too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kvcache_sim.base.errors import UsageError

#: Set to anything but ``0`` or nothing: no plug-in is loaded.
NO_PLUGINS = "KVSIM_NO_PLUGINS"
_names_only: ContextVar[bool] = ContextVar("names_only", default=False)
#: Texts that were printed; None: nothing is printed, as in the Python API.
_announced: set[str] | None = None


def may_load() -> bool:
    """Return False where names of plug-ins are text."""
    return not _names_only.get()


@contextmanager
def names_only() -> Iterator[None]:
    """Take the names of plug-ins as text inside the block: nothing imports one."""
    before = _names_only.set(True)
    try:
        yield
    finally:
        _names_only.reset(before)


@contextmanager
def refused() -> Iterator[None]:
    """Refuse every plug-in inside the block, in child processes too."""
    before = os.environ.get(NO_PLUGINS)
    os.environ[NO_PLUGINS] = "1"
    try:
        yield
    finally:
        os.environ.pop(NO_PLUGINS)
        if before is not None:
            os.environ[NO_PLUGINS] = before


def announce_plugins() -> None:
    """Print a line on stderr before each plug-in that this process imports from now on."""
    global _announced
    _announced = set()


def ask_to_load(text: str) -> None:
    """Raise UsageError where no plug-in may be imported."""
    if os.environ.get(NO_PLUGINS, "0") not in ("", "0"):
        raise UsageError("plug-ins are refused (--no-plugins)", got=repr(text))
    if not may_load():
        raise UsageError("a plug-in is not loaded where a run is read", got=repr(text))


def announce(text: str) -> None:
    """Print the line of a plug-in whose code is about to run."""
    if _announced is not None and text not in _announced:
        _announced.add(text)
        print(f"plug-in: {text}", file=sys.stderr)
