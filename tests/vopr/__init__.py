"""The simulation tester (``make vopr``): random scenarios with faults, judged by invariants and by models.

- ``finding``     a broken oracle, and the kinds of cases
- ``scenarios``   simulated scenarios: draws, faults inside the simulation, smaller scenarios
- ``oracles``     what must hold of each run
- ``coordinator`` sweeps on simulated processes, clock and disk
- ``live``        live runs on a simulated clock
- ``processes``   real processes that are killed, or whose disk is full, at the n-th write
- ``properties``  property tests of the suite on fresh seeds
- ``shrink``      a smaller case with the same finding
"""
