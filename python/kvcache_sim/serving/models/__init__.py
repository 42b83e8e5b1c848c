"""Several models in one fleet.

- ``settings``  the model of each machine
- ``by_model``  a router for each model
"""
