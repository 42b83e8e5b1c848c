"""The change of a run's answers within the stated errors of its assumptions, and the decisive assumption.

``moves`` runs the scenario at both ends of each assumption, ``text`` prints the results.
"""
