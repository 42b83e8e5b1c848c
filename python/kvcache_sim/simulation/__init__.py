"""One simulation: build the cluster, run it, return what was measured.

- ``options``     how to run: engine, checks, what is recorded
- ``simulation``  a cluster about to run one trace
- ``end_checks``  the invariants checked at the end of every run
- ``measured``    counters and uses of a finished cluster
- ``changes``     what comes and goes while a cluster serves
- ``live``        a simulation whose requests come while it runs
- ``marks``       what a run has counted at some of its times: a part of a run is the difference of two
- ``prefixes``    the prefixes that requests share, with the tokens of each that are resident at the end
- ``progress``    how far a run has come: what a progress bar shows
- ``routing``     who decides where requests go in one simulation
- ``schedule``    writing down an engine's schedule while a simulation runs, and its figures afterwards
- ``spec_keys``   the settings of a scenario that the specification covers, a row a key
- ``spec_demand``, ``spec_simulation``  one run by the specification (``--engine spec``)
- ``windows``     a run over a trace that is read in windows
"""

from kvcache_sim.simulation.options import RunOptions
from kvcache_sim.simulation.simulation import Simulation, simulate

__all__ = ["RunOptions", "Simulation", "simulate"]
