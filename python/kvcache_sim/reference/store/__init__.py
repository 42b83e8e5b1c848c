"""The block store, block by block, in plain Python: the oracle of the tests and ``--backend python``.

It shares no code with the native store: no runs, no splits, no counters of what can be evicted; every
question is answered by looking at all blocks. Rules: semantics 1, 2 and 4.

``keys`` names blocks · ``blocks`` is what is kept of each · ``residency`` looks up and counts · ``eviction``
makes room · ``leases`` is what requests hold · ``moves`` copies between tiers · ``marks`` does so by
hand · ``check`` recounts everything · ``refusals`` is what a call may not ask · ``store`` is all of it.

- ``orders``  eviction orders other than recency over the reference's blocks
"""

from kvcache_sim.reference.store.keys import ReferenceKeys
from kvcache_sim.reference.store.store import ReferenceStore

__all__ = ["ReferenceKeys", "ReferenceStore"]
