"""Several models in one fleet.

- ``settings``  which machine serves which model
- ``by_model``  a router for each model
"""
