"""Forms of KV below the GPU and on the wire: narrower blocks, and the rates of their coding."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvcache_sim.units import NS_PER_S
from kvcache_sim.values import Value

#: The keys of a form in a scenario.
FORM_KEYS = ("kv_ratio", "encode", "decode")


class BlockForm(Value):
    """The form of the blocks of a tier, or on the wire: fp8, compressed, or as on the GPU."""

    #: Bytes there per byte on the GPU.
    kv_ratio: float = 1.0
    #: Bytes of the GPU's form that are encoded for it, and decoded from it, per second; None: any number.
    encode_bytes_per_s: int | None = None
    decode_bytes_per_s: int | None = None

    def bytes_of(self, block_bytes: int) -> int:
        """Return the bytes of a block that has ``block_bytes`` on the GPU, rounded up."""
        return block_bytes if self.kv_ratio == 1.0 else max(math.ceil(block_bytes * self.kv_ratio), 1)

    def in_core(self, block_bytes: int) -> tuple[int, int, int]:
        """Return the bytes of a block, and the times (ns) to encode and to decode it."""
        rates = self.encode_bytes_per_s, self.decode_bytes_per_s
        encode_ns, decode_ns = (0 if rate is None else -(-block_bytes * NS_PER_S // rate) for rate in rates)
        return self.bytes_of(block_bytes), encode_ns, decode_ns


#: By tier the bytes of a block there, and the times (ns) to encode and to decode it.
FormsInCore = tuple[tuple[int, int, int], ...]


def forms_in_core(wire: BlockForm, lower: Sequence[BlockForm], block_bytes: int) -> FormsInCore:
    """Return by tier the form of its blocks, the GPU's on the ``wire``; empty if all are as on the GPU."""
    forms = wire, *lower
    if all(form == BlockForm() for form in forms):
        return ()
    return tuple(form.in_core(block_bytes) for form in forms)
