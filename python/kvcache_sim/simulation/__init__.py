"""One simulation: build the cluster, run it, return what was measured.

- ``options``     how to run: backend, checks, what is recorded
- ``simulation``  a cluster about to run one trace
- ``end_checks``  the invariants checked at the end of every run
- ``measured``    counters and uses of a finished cluster
"""

from kvcache_sim.simulation.options import RunOptions
from kvcache_sim.simulation.simulation import Simulation, simulate

__all__ = ["RunOptions", "Simulation", "simulate"]
