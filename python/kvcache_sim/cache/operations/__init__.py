"""Manual cache operations: every operation of seed 001 on one machine's cache, with its timestamps.

They use the simulation's own store, channels and moves. `open_machines` makes caches over a trace,
`machine_cache.MachineCache` operates one cache. Requests and blocks are named by the trace.

| seed 001 | here |
|---|---|
| set_storage_layer_info_timestamps | `MachineCache.mark`, `MachineCache.mark_absent` |
| Channel.transmit | `MachineCache.transmit` |
| KVBlockTrie.lookup | `MachineCache.match_prefix` |
| synced_acquire_space | `MachineCache.acquire_space` |
| _evict_blocks, evict_to_lower_location | `MachineCache.evict` |
| evict_to_discard | `MachineCache.discard` |
| synced_fetch_from_disk_to_memory, fetch_to_higher_location | `MachineCache.fetch_to_memory` |
| _lookup_and_fetch_from_remote | `MachineCache.fetch_from_remote` |
| move_to_gpu, active_blocks | `MachineCache.allocate_active` |
| switch_active_fullblocks_into_cache | `MachineCache.switch_active_into_cache` |

`listing` returns the copies of blocks and their times, `workload/block_names.py` their contents.

- ``marking``         a machine's store, if it supports manual marks
- ``native``          machines of the core that are operated manually
- ``operated_store``  the store of a machine with the queries that operations share
- ``transfer``        a transfer of a manually operated machine, and its times
"""

from kvcache_sim.cache.machine import MachineTiers
from kvcache_sim.cache.operations.listing import BlockCopy, ListedBlock
from kvcache_sim.cache.operations.machine_cache import MachineCache
from kvcache_sim.cache.operations.open_machines import open_machines
from kvcache_sim.cache.operations.transfer import Active, Space, Switched
from kvcache_sim.workload.block_names import BlockTokens

__all__ = [
    "Active",
    "BlockCopy",
    "BlockTokens",
    "ListedBlock",
    "MachineCache",
    "MachineTiers",
    "Space",
    "Switched",
    "open_machines",
]
