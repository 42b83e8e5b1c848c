"""The trace toolbox: statistics, a writer, and transforms that check their own invariants.

- ``anonymise``    a trace without names: what is shared stays, what it was called does not
- ``cut``          a window of time out of a trace
- ``file``         text files written whole or not at all
- ``invariant``    how a transform checks its own output: what it promises, said where it is broken
- ``merge``        several traces as one, by time of arrival
- ``namespace``    traces put beside each other: their ids and sessions kept apart
- ``picture``      the working set over time as a small picture that needs no library
- ``rechunk``      a trace in smaller blocks, each old block being a run of new ones
- ``repeat``       a trace several times over, each time with blocks and sessions of its own
- ``sample``       part of a trace with its reuse kept
- ``scale``        a trace faster or slower: times divided exactly
- ``stats``        what a trace is like: lengths, arrivals, sharing, reuse, hit ceilings, working set
- ``stats_table``  the statistics of a trace as lines for people, at most 80 columns
- ``unbounded``    what an unbounded cache would find of each prompt
- ``write``        a trace as Mooncake JSONL, the form every transform writes
"""
