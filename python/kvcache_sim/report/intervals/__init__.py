"""The intervals of a run's main figures, and the assumptions that they follow from.

- ``certainty``    the intervals of a run: over its requests, and of its model by two replays
- ``assumption``   one assumption of a scenario, and the settings at another value
- ``assumptions``  every assumption of a scenario with its interval
- ``links``        the links that a scenario assumes: its channels, those of equal figures together
- ``together``     all assumptions at once, at the bounds of 90 % of what they leave open
- ``replays``      a run's requests, run again with other settings
"""
