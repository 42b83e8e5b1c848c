"""Two or more runs beside each other: what differs in their settings, and by how much in their numbers.

- ``samples``     each request's numbers, paired where both runs served the same trace
- ``comparison``  the whole answer as values
- ``text``        the answer as tables and sentences
- ``sides``       the sides of a comparison: finished runs, or scenario files that are simulated for it
"""
