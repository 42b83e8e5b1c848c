"""A machine's cache: its store of blocks, its tiers and edges, and the policies that move blocks.

- ``admission``      the part of a finished request that the cache keeps for others
- ``engine_stores``  stores that decide as a real engine does
- ``fetch``          the part of a found run that is loaded
- ``groups``         a model's KV cache groups in one pool, and the settings that decide what it keeps
- ``lower_engines``  stores of engines with a tier of their own below the GPU
- ``machine``        a machine's cache, built whole
- ``moved``          bytes that one machine moved
- ``operations``     every operation of seed 001 on one machine's cache, each with its timestamps
- ``pool``           a shared pool node: memory without a GPU that all machines write and read
- ``prefetch``       blocks brought up before their request is admitted
- ``settings``       settings of the cache: tiers, views, and how blocks are kept, written and fetched
- ``store``          the contracts of a machine's block store
- ``store_kinds``    what each kind of store can do, known before one is built
- ``stores``         the store of a machine
- ``tier_rules``     a machine's tiers, edges and reads as the core takes them
- ``tree_store``     the contracts of a tree of blocks over any number of tiers: its moves, and manual marks
- ``write``          copies of KV one tier down
"""
