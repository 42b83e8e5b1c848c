"""Calibration: measured iterations and kernels in, a step-time model with its error out.

``rows`` reads iterations, ``kernels`` composes them from kernel times, ``split`` holds rows out, ``design``
is the form, ``fit`` solves it, ``accuracy`` judges it, ``shipped`` makes the packaged sets.

- ``base``           a source of step times as a prior
- ``choice``         which form of step times serves some rows
- ``closed_loop``    a closed loop of clients against one engine, step by step, by measured kernels
- ``command``        what ``kvsim calibrate`` fits
- ``compilation``    iterations that are no steps
- ``csv_table``      a CSV of measurements in columns: whole rows, the columns asked for, numbers that can be
- ``degrees``        a TP degree that was not measured, from those that were
- ``mixtures``       the packaged sets of measured mixtures of experts
- ``model_file``     the model file: coefficients, what they were fitted to, and the error on rows held out
- ``rates``          what a GPU's kernels reach, fitted to measured ones
- ``request_fit``    a step-time set from requests alone
- ``request_steps``  the steps behind a log of requests
- ``request_terms``  what a fit to requests says to a person
- ``runs``           steps whose times only their sum tells
- ``server_costs``   host and first-token costs of real servers, and how far their kernels' parts are off
- ``server_launch``  what real servers were launched with, as far as it decides when prompts run
- ``server_runs``    real servers that ``aiconfigurator-core`` lists
- ``servers``        real servers against measured kernels
- ``spreads``        what unequal KV lengths cost
- ``topologies``     mixtures by parallel topology
"""
