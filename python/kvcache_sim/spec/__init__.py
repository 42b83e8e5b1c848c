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
instead, ``--engine spec-plain`` this store; ``block_store`` is the interface of both. Rules that no seed
requires extend these classes from outside, in ``tests/support/spec_*.py``: a class names the classes of its
parts (``scheduler_class`` and the like), and a model replaces them. Two tests walk through a run line by
line: ``tests/spec/test_seed_000_narrated.py`` (sessions, outcomes), ``test_seed_001_walkthrough.py`` (tiers).

One request with numbers (``tests/spec/test_worked_request.py`` runs it). A GPU of 5 blocks of 16 tokens, a
CPU of 100; a block has 1 MB of KV in 4 layers. Each direction has a channel of 1 GB/s and 0.5 ms of latency.
A step takes 10 ms, 0.1 ms a token and 1 ms a decoding request. Prompts of 4 blocks and answers of 3 tokens:
a b c d at 0 s, e f g h at 1 s, and at 2 s our request, a b c x. Times in ms after 2 s:

| time | event | file |
|---|---|---|
| 0 | It arrives, and is routed to the one machine. | ``simulator``, ``routers`` |
| 2 | The client's 2 ms end: ``client``. | ``records`` |
| 3 | The lookup's 1 ms ends: ``lookup``. It queues, and the idle machine is at a boundary. | ``scheduler`` |
| 3 | a b c are found on the CPU: e f g h have pushed them out. 48 tokens hit, 16 are left. | ``admission`` |
| 3 | 4 blocks are reserved: 1 is free, and h g f leave, the deepest first. | ``store``, ``space`` |
| 3 | They are written down: 3 MB take 3 ms, and 0.5 of latency. | ``mover``, ``channels`` |
| 6.5 | The blocks are free: 3.5 ms of ``fetch`` for space. a b c leave the CPU. | ``ttft`` |
| 10 | They have arrived: 3.5 ms of ``fetch`` from the CPU. The step starts: 16 tokens, 11.6 ms. | ``batch`` |
| 21.6 | The step ends: x is shared, the first token is out. TTFT = 2 + 1 + 7 + 11.6. | ``batch`` |
| 23.1 | Token 65 needs a fifth block: e has been written down in 1.5 ms. | ``space`` |
| 34.2 | The second token: a step of 10 + 0.1 + 1 ms. | ``batch`` |
| 45.3 | The third. The request ends; a b c x stay on the GPU, the most recent. | ``scheduler`` |

With layer pipelining the step starts at 7.75, when the first layer is there (6.5 + 0.5 + 0.75): layer k is
computed while layer k + 1 arrives. The first token is out at 19.35.

Units: times are integer ns, lengths tokens or blocks; ``request`` is an index in the trace; blocks are
indices in a request's path, ranges exclude ``end``, ``to`` and "past the last"; tier 0 is the GPU.
"""
