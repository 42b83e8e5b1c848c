"""A run as a timeline for Perfetto (ui.perfetto.dev) and chrome://tracing.

- ``build``      the contents, the window and the sampling
- ``requests``   a lane of slices a request
- ``machinery``  scheduler steps, transfers, moves of each tier, and the arrows between them
- ``trace_json`` the format's own records
"""
