"""Packages built on finished runs and on scenarios; nothing below ``cli`` and ``api`` imports them.

- ``live``   a simulated cluster in real time: HTTP, metrics, KV events; recording, shadow caches
- ``calibrate``  step times fitted to measurements; measured kernels
- ``session``  agents' sessions on hosted caches: predictions, causes, prices, what-ifs
- ``study``  execution of many runs: sweeps, sizing, the experiments of ``--sensitivity``
"""
