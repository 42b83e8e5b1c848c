"""What names blocks: their keys, and the trace's ids that cover them."""

from __future__ import annotations

from kvcache_sim import _core
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.tokens.row_key import id_name
from kvcache_sim.workload.trace import Trace


class BlockNames:
    """The name of each block of a trace's requests: its key, and the trace's id that covers it.

    Keeps the trace's ids as a list: 8 bytes an id reference.
    """

    def __init__(self, trace: Trace, block_size_tokens: int) -> None:
        arrays = key_arrays(trace, block_size_tokens)
        self._trace = trace
        self._blocks_per_id = arrays[2]
        self._keys = _core.Keys(*arrays)

    @property
    def requests(self) -> int:
        """Requests of the trace."""
        return len(self._trace)

    def key(self, request: int, block: int) -> int:
        """Return a block's key, as both stores know it; the private ones of answers have bit 63 set."""
        return self._keys.key(request, block)

    def hash_id(self, request: int, block: int) -> int | str | None:
        """Return the trace's own id that covers a block, None for an answer that no prompt shows."""
        key = self.key(request, block)
        return None if key >> 63 else id_name(self._trace, key // self._blocks_per_id)
