"""Machines that come and go while requests are served.

- ``plan``        who joins, drains or is lost, and when
- ``membership``  the events of a plan, and who serves
"""
