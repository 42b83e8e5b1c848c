"""Channels that carry KV between tiers and machines, and its arrival times (semantics 3).

| file | contents |
|---|---|
| `settings` | rate, latency and sharing of a channel; channels between machines |
| `channel` | the times of a job, and a channel's traffic so far |
| `cluster` | all channels of a cluster, by name |
| `choice/` | the choice of a channel for a transfer, if an edge has several |

The channels themselves are the core's (``rust/core/src/transfers/``); to read, ``spec/channels.py``.
"""
