"""Studies: many runs of one scenario, each with other settings.

- ``sweeps``       execution of many runs; the search for good settings
- ``sizing``       the load that a configuration sustains
- ``sensitivity``  the change of a run's answers within the stated errors of its assumptions
"""
