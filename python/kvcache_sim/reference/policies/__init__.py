"""The eviction policies block by block.

- ``arc``           adaptive replacement
- ``by_name``       the reference of each eviction policy, found by its name
- ``clock``         CLOCK: first in, first out, with a second chance for what was used (Corbató 1968)
- ``fifo``          first in, first out: the block inserted first, whatever its use (Belady 1966)
- ``gdsf``          greedy dual size frequency: age + uses × cost / size (Cherkasova 1998)
- ``length_aware``  length-aware: like least frequently used, but blocks later in their prompt go first
- ``lfu``           least frequently used, counts kept only while cached
- ``lirs``          LIRS: who returns soon stays, judged by the distance of the last two uses
- ``lru``           least recently used: the block whose last use is longest ago (Mattson et al
- ``pgdsf``         prefix-aware GDSF: age + uses × cost of computing it again (RAGCache, Jin et al
- ``priority``      priorities by token range with durations, least recent first within one
- ``ranked``        policies that are a key of a block
- ``s3fifo``        S3-FIFO: a small queue sifts, a main queue gives second chances, ghosts return
- ``s4lru``         S4LRU: four segments of recency, of which each use climbs one (Huang et al., SOSP 2013)
- ``segments``      segments of recency, lowest first
- ``sieve``         SIEVE: one queue, a visited bit, a hand that moves from old to new and stays there
- ``slru``          segmented LRU: what is used again is protected
- ``ttl``           time to live: a block unused for the time is gone
- ``twoq``          2Q: newcomers queue, what returns after it left is kept by recency
- ``wtinylfu``      W-TinyLFU: a window, and a main cache that admits only what is used more often
"""
