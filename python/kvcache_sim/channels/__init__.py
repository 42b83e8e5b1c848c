"""What carries KV between tiers and machines, and when it arrives there (semantics 3).

| file | what lives there |
|---|---|
| `settings` | rate, latency and sharing of a channel; those between machines |
| `channel` | the times of a job, what a channel carried |
| `cluster` | all channels of a cluster, by name |
| `choice/` | the channel that a transfer takes where an edge is on several |

The channels themselves are the core's (``rust/core/src/transfers/``); to read, ``spec/channels.py``.
"""
