"""What carries KV between tiers and machines, and when it arrives there (semantics 3).

| file | what lives there |
|---|---|
| `settings` | rate, latency and sharing of a channel; those between machines |
| `channel` | a FIFO link whose times are final at once |
| `layered_channel` | a link served layer by layer, event by event: fair, or loads first |
| `slowed_channel` | a FIFO link that is slow, or down, for some times |
| `edges` | the channels of one machine's edges |
| `cluster` | all channels of a cluster, by name |
| `choice/` | which channel an edge takes that is on several: a file a policy |
| `demand` | how much rate a channel was asked for |
"""
