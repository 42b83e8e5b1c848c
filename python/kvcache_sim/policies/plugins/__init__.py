"""Policies written outside the package.

- ``views``      the policy's read-only view of blocks and its tier
- ``contract``   the protocol of a policy class, and the errors for broken contracts
- ``choice``     a policy of any kind by its name: built in, or a plug-in with checked answers
- ``permission``  the commands that may import a plug-in
- ``load``       loader of ``file.py:Name``, ``pkg.mod:Name`` and entry points
- ``priority``   level 1: a function of a block as a policy
- ``adapters``   adapters for unmodified policies of SGLang, vLLM and libCacheSim
- ``stand_ins``  the names that such files import, if their package is not installed
- ``host``       runs a policy on a tier and checks every answer
- ``watchdog``   interrupts and names a policy that does not return
- ``uses``       calls of a run's plug-ins, and the time spent in them
- ``open``       loads, adapts and self-tests a plug-in
- ``replay``     replay of a whole trace with a plug-in
- ``fuzz``       ``kvsim policies check``
- ``template``   ``kvsim policies new``
- ``hosted``     a plug-in as the eviction order of a tier of a timed run
"""
