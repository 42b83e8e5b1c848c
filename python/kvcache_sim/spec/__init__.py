"""The specification: a simulator of KV-cache and prefix-cache behavior to read, block by block, step by step.

It has the rules of the seeds, each once. The lifecycle of a request, by stage, file and section of the seeds:

| stage | file | seed |
|---|---|---|
| arrive, at a time or after another request | ``simulator`` | 000, 2; 000, 4 |
| route to a machine | ``routers`` | 001, "Caching Policy" |
| wait: its state, its queue | ``request``, ``scheduler`` | 000, 3.1 |
| match the prefix, plan: reuse, load or recompute | ``admission``, ``movement_policies`` | 000, 3.2 |
| decide the outcome | ``lookups``, ``prefix_store`` | 000, 3.2; 000, 5 |
| find blocks: names, copies, times, users | ``keys``, ``blocks``, ``residency`` | 001, "Lookup in trie" |
| reserve blocks: evict, demote, discard | ``store``, ``space``, ``eviction`` | 001, "Delete of KV cache" |
| move blocks over channels | ``mover``, ``channels``, ``remote`` | 001, "Movements of KV cache" |
| prefill in chunks, overlapped layer by layer | ``batch``, ``ttft`` | 000, 3.3; 001, "Examples" |
| commit: share computed blocks | ``batch``, ``store`` | 001, "Generation of KV cache" |
| hand over to a decode machine | ``handover`` | – |
| decode, finish, release, keep reusable blocks | ``scheduler``, ``lookups`` | 000, 3.4 |
| record: rows, events, digest | ``records`` | 000, 5 |

Read ``simulator`` first: it builds the machines and owns their events. ``store`` is the block store,
``simplified_store`` counts tokens instead of blocks (000, 3.5). ``--engine spec`` uses the core's store
instead, ``--engine spec-plain`` this store. Rules that no seed requires extend these
classes from outside: a class names the classes of its parts (``scheduler_class`` and the like).

Units: times are integer ns, lengths tokens or blocks; ``request`` is an index in the trace; blocks are
indices in a request's path, ranges exclude ``end``, ``to`` and "past the last"; tier 0 is the GPU.
"""
