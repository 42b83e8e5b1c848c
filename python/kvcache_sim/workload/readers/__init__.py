"""Readers of the traces the field publishes: one file a format, one row each in ``registry.FORMATS``.

``read_trace`` is the door: it opens a file, finds its format, and returns the columns of ``workload.trace``.
Each name is imported with its first use: a generated workload has no format to find.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcache_sim.workload.readers.read import Reading, open_trace, read_report, read_trace
    from kvcache_sim.workload.readers.settings import ReadSettings

__all__ = ["ReadSettings", "Reading", "open_trace", "read_report", "read_trace"]


def __getattr__(name: str) -> object:
    """Import a name of ``__all__``."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    place = "settings" if name == "ReadSettings" else "read"
    return getattr(import_module(f"{__name__}.{place}"), name)
