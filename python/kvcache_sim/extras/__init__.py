"""Packages built on finished runs and on scenarios; nothing below ``cli`` and ``api`` imports them.

- ``live``   a simulated cluster in real time: HTTP, metrics, KV events; recording, shadow caches
- ``calibrate``  step times fitted to measurements; measured kernels
- ``study``  execution of many runs: sweeps, sizing, the experiments of ``--sensitivity``
"""
