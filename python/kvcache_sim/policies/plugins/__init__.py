"""Policies written outside the package.

- ``views``      what a policy sees: blocks and the tier, read-only
- ``contract``   the protocol of a policy class, and the kinds of answers refused
- ``choice``     a policy of any kind by its name: built in, or a plug-in whose answers are checked
- ``load``       ``file.py:Name``, ``pkg.mod:Name``, entry points
- ``priority``   level 1: a function of a block as a policy
- ``adapters``  adapters for unmodified policies of others
- ``stand_ins``  the few names that such files import, where their package is absent
- ``host``       runs a policy on a tier and checks every answer
- ``watchdog``   names a policy that does not return
- ``uses``       how often the plug-ins of a run were called, and how long they took
- ``open``       loads, adapts and self-tests a plug-in
- ``replay``     a whole trace through a plug-in
- ``fuzz``       ``kvsim policies check``
- ``template``   ``kvsim policies new``
- ``hosted``     a plug-in as the eviction order of a tier of a timed run
"""
