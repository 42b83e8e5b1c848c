"""How far a run's answers move within the stated errors of what it assumes, and which assumption decides.

``assumptions`` lists what a scenario assumes with its interval and how to run with another value of it;
``moves`` runs the scenario at both ends of each; ``text`` says what came out.

- ``links``   the links that a scenario assumes: its channels, those of equal figures together
"""
