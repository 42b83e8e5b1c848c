"""Names of figures and reports for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.metrics.batches import batch_figures
from kvcache_sim.metrics.columns import Column, miss_column
from kvcache_sim.metrics.measure_settings import Edge
from kvcache_sim.metrics.miss_causes import miss_causes
from kvcache_sim.metrics.names import flatten
from kvcache_sim.metrics.summary_text import summary_text
from kvcache_sim.metrics.tables import read_table, write_table
from kvcache_sim.metrics.thresholds import parse_threshold
from kvcache_sim.metrics.windows import Windows, steady_from
from kvcache_sim.report.finished import FinishedRun, find_trace
from kvcache_sim.report.picture import Table
from kvcache_sim.report.render import draw
from kvcache_sim.report.reuse import reuse_of
from kvcache_sim.report.upper_bound import upper_bound_of
