"""Several models and adapters in one fleet.

- ``settings``  which machine serves which model, which machines take turns, what adapters take
- ``by_model``  a router for each model
- ``holding``   requests that are sent to a machine and wait before its engine has them
- ``turns``     models that share a machine, one awake at a time
- ``adapters``  low-rank adapters in a machine's slots
"""
