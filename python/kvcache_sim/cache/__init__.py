"""A machine's cache: its store of blocks, its tiers and edges, and the policies that move blocks.

- ``admission``      the part of a finished request that the cache keeps for others
- ``engine_stores``  stores with the rules of a real engine
- ``fetch``          the part of a found run that is loaded
- ``groups``         a model's KV cache groups in one pool, and the settings that decide what it keeps
- ``lower_engines``  stores of engines with a tier of their own below the GPU
- ``machine``        construction of a machine's cache
- ``moved``          bytes that one machine moved
- ``operations``     manual cache operations on one machine's cache, each with its timestamps
- ``pool``           a shared pool node: memory without a GPU that all machines write and read
- ``prefetch``       copies of blocks to faster tiers before their request is admitted
- ``settings``       settings of the cache: tiers and forms of their blocks, views, retention, writes, fetches
- ``store``          the contracts of a machine's block store
- ``store_kinds``    the abilities of each kind of store
- ``stores``         the store of a machine
- ``tier_rules``     a machine's tiers, edges and reads in the core's format
- ``tree_store``     the contracts of a tree of blocks over any number of tiers: its moves, and manual marks
- ``write``          copies of KV one tier down
"""
