"""What a machine keeps on its tiers: its store of blocks, what moves between tiers, and how views show it.

- ``admission``      what the cache admits: how much of a finished request is kept for others
- ``digest``         the digest of a machine: a hash over records of what it did
- ``engine_stores``  stores that decide as a real engine does
- ``fetch``          how much of a found run is loaded and how much recomputed
- ``group_keys``     the keys of the blocks of KV cache groups over a trace
- ``group_store``    the contracts of a pool of several KV cache groups, alone and with a tier below it
- ``groups``         a model's KV cache groups in one pool, and the settings that decide what it keeps
- ``layer_pages``    what a copy of cache groups' blocks is, layer by layer
- ``loader``         loading a part of a found run to the GPU, from wherever it lies (semantics 4)
- ``lower_engines``  stores of engines with a tier of their own below the GPU
- ``machine_store``  one machine's store under every contract that it fulfils
- ``moves``          transfers: the store's orders put on channels, in time order
- ``operations``     every operation of seed 001 on one machine's cache, each with its timestamps
- ``pool``           a shared pool node: memory without a GPU that all machines write and read
- ``prefetch``       what is brought up to the cpu before it is asked for
- ``prefix_view``    prefixes shared between requests
- ``remote``         reads from other machines
- ``session_view``   sessions as the cache sees them
- ``settings``       settings of the cache floor: tiers, and how blocks are kept, written and fetched
- ``staging``        copying blocks of a machine up, tier by tier, to where they are loaded from
- ``store_kinds``    what each kind of store can do, known before one is built
- ``stores``         which store a machine gets
- ``token_store``    the cache under simplified accounting
- ``transfer``       one order on its way
- ``tree_store``     the contracts of a tree of blocks over any number of tiers: its moves, and marks by hand
- ``write``          when KV is copied one tier down: one small file a policy, one row here
"""
