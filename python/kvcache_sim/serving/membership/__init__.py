"""Machines that join, drain or fail while requests are served.

- ``plan``            machines that join, drain or are lost, and their times
- ``membership``      the events of a plan, and the machines that serve
- ``losses``          lost tiers and router indexes, emptied caches
- ``scaling``         a policy that orders and releases machines
- ``scaling_policy``  policies for the number of machines: one small class and one row each
"""
