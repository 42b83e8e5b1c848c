"""The policy zoo on a whole trace.

- ``cut``        a trace's prompts cut into blocks for the native replays
- ``variants``   ``ttl:300s``: a policy's name and what is written after it
- ``replays``    one policy at one capacity, with its ceilings
- ``ceilings``   unbounded, and Belady
- ``reference``  the same replays in plain Python, sharing no code with the core
"""
