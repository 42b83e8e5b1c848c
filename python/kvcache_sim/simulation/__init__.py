"""One simulation: build the cluster, run it, return the measurements.

- ``options``     how to run: engine, checks, recording
- ``simulation``  a cluster about to run one trace
- ``context``     answers end at the model's context
- ``end_checks``  the invariants checked at the end of every run
- ``measured``    counters and resource use of a finished cluster
- ``changes``     machines that join and leave, and copies that are lost, during a run
- ``live``        a simulation that receives its requests while it runs
- ``marks``       snapshots of counters at given times, and usage shares for a progress bar
- ``prefixes``    the prefixes that requests share, with their resident tokens at the end
- ``routing``     the routers of one simulation and their view of the caches
- ``schedule``    recording of an engine's schedule, and its figures
- ``spec_keys``   the settings of a scenario that the specification covers, one row per key
- ``spec_invariants``  the invariants of the store of a run by the specification
- ``spec_demand``, ``spec_simulation``  one run by the specification (``--engine spec``)
- ``windows``     a run over a trace that is read in windows
"""

from kvcache_sim.simulation.options import RunOptions
from kvcache_sim.simulation.simulation import Simulation, simulate

__all__ = ["RunOptions", "Simulation", "simulate"]
