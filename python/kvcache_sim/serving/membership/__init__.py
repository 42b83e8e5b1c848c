"""Machines that come and go while requests are served.

- ``plan``        who joins, drains or is lost, and when
- ``membership``  the events of a plan, and who serves
- ``losses``      tiers and indexes that are lost, caches that are emptied
- ``scaling``     a policy that orders machines and lets them go
- ``scaling_policy`` how many machines serve: one small class a policy, one row here
"""
