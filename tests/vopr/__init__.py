"""The simulation tester (``make vopr``): random scenarios with faults, judged by invariants and by models.

- ``finding``     a broken oracle, and what a kind of cases provides
- ``cases``, ``search``  cases by number, and the search until something is found
- ``faulty``      a disk that fills up or whose process is killed, an event loop on a simulated clock
- ``scenarios``   simulated scenarios: draws, faults inside the simulation, smaller scenarios
- ``tight``       clusters with scarce space, many to a case
- ``oracles``     what must hold of each run
- ``relations``   what must hold between two runs of one scenario
- ``coordinator`` sweeps on simulated processes, clock and disk
- ``live``        live runs on a simulated clock
- ``properties``  property tests of the suite on fresh seeds
- ``shrink``      a smaller case with the same finding
"""
