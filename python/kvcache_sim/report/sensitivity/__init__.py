"""The change of a run's answers within the stated errors of its assumptions, and the decisive assumption.

``assumptions`` lists the assumptions of a scenario with their intervals and the settings at other values;
``moves`` runs the scenario at both ends of each; ``text`` prints the results.

- ``replays``  a run's requests, run again with other settings
- ``together`` all assumptions at once, at the bounds of 90 % of what they leave open
- ``links``   the links that a scenario assumes: its channels, those of equal figures together
"""
