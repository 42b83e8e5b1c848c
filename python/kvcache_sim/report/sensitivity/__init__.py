"""The change of a run's answers within the stated errors of its assumptions, and the decisive assumption.

``assumptions`` lists the assumptions of a scenario with their intervals and the settings at other values;
``moves`` runs the scenario at both ends of each; ``text`` prints the results.

- ``links``   the links that a scenario assumes: its channels, those of equal figures together
"""
