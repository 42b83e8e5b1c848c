"""Calibration: measured iterations and kernels in, a step-time model with its error out.

``rows`` reads iterations, holds some out and judges by them, ``kernels`` composes them from kernel times,
``design`` is the form, ``fit`` solves it, ``shipped`` makes the packaged sets.

- ``choice``         which form of step times serves some rows
- ``closed_loop``    a closed loop of clients against one engine, step by step, by measured kernels
- ``command``        what ``kvsim calibrate`` fits
- ``csv_table``      a CSV of measurements in columns: whole rows, the columns asked for, numbers that can be
- ``model_file``     the model file: coefficients, what they were fitted to, and the error on rows held out
- ``request_fit``    a step-time set from requests alone
- ``request_steps``  the steps behind a log of requests
- ``runs``           steps whose times only their sum tells, or that are no steps
- ``server_runs``    real servers that ``aiconfigurator-core`` lists
- ``servers``        real servers against measured kernels, with host costs fitted
- ``transfer``       deployments that were not measured, from those that were
"""
