"""Two or more runs compared: the settings that differ, and the size of the differences in their numbers.

- ``samples``     each request's numbers, paired where both runs served the same trace
- ``comparison``  the whole answer as values
- ``stretches``   intervals of differences from stretches of time
- ``model_ratio`` ratios at the same bound of the model's errors
- ``text``        the differences as tables and sentences
- ``verdict``     the better run, by how much, and if that is certain
- ``checked``     the certain figures again, at another seed
- ``printed``     the answer as printed, and as JSON
- ``sides``       the sides of a comparison: finished runs, or scenario files that are simulated for it
"""
