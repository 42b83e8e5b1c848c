"""Two or more runs compared: the settings that differ, and the size of the differences in their numbers.

- ``samples``     each request's numbers, paired where both runs served the same trace
- ``comparison``  the whole answer as values
- ``text``        the answer as tables and sentences
- ``sides``       the sides of a comparison: finished runs, or scenario files that are simulated for it
"""
