"""Readers of the traces the field publishes: one file a format, one row each in ``registry.FORMATS``.

``read_trace`` is the door: it opens a file, finds its format, and returns the columns of ``workload.trace``.
"""

from kvcache_sim.workload.readers.read import Reading, open_trace, read_report, read_trace
from kvcache_sim.workload.readers.settings import ReadSettings

__all__ = ["ReadSettings", "Reading", "open_trace", "read_report", "read_trace"]
