"""The trace toolbox: statistics, a writer, and transforms that check their own invariants.

- ``check``        the verdict on a trace
- ``stats``        statistics of a trace: lengths, arrivals, sharing, reuse, upper bounds of hits, working set
- ``transforms``   windows, merged and repeated traces, scaled times, other block sizes, anonymous traces
- ``edited``       conversations that compact, or drop old results of tools
- ``write``        a trace as Mooncake JSONL, the output of every transform
- ``parquet``      a trace in Parquet
- ``windowed``     transforms that write a long trace while they read it
"""
