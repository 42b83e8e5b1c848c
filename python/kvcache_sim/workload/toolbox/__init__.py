"""The trace toolbox: statistics, a writer, and transforms that check their own invariants.

- ``check``        the verdict on a trace
- ``stats``        what a trace is like: lengths, arrivals, sharing, reuse, hit ceilings, working set
- ``transforms``   windows, merged and repeated traces, other times and blocks, a trace without names
- ``write``        a trace as Mooncake JSONL, the form every transform writes
"""
