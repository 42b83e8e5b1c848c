"""The specification: a simulator of KV-cache and prefix-cache behavior to read, block by block, step by step.

It holds what the seeds ask for, each rule once. The life of a request, each stage with its file and the
section of the seeds that it follows:

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
| commit: share what is computed | ``batch``, ``store`` | 001, "Generation of KV cache" |
| hand over to a decode machine | ``handover`` | – |
| decode, finish, release, keep what is reusable | ``scheduler``, ``lookups`` | 000, 3.4 |
| record: rows, events, digest | ``records`` | 000, 5 |

Read ``simulator`` first: it builds the machines and owns their events. ``store`` is the block store, which
``invariants`` recounts; ``simplified_store`` counts tokens in place of blocks (000, 3.5). With ``--engine
spec`` the core's store takes its place, ``--engine spec-plain`` runs over it. Rules that no seed asks for
extend these classes from outside: a class names those of its parts (``scheduler_class`` and the like).
"""
