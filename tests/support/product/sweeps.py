"""Names of sweeps and searches for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.extras.study.sizing.question import Answer
from kvcache_sim.extras.study.sweeps.coordinator import merge_shards, run_sweep
from kvcache_sim.extras.study.sweeps.plan import Plan, Resolved, Shard, lay_out
from kvcache_sim.extras.study.sweeps.space import Space
from kvcache_sim.extras.study.sweeps.store import CellStore
from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner
from kvcache_sim.extras.study.sweeps.tables import result_rows
