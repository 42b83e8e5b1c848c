"""Requests of an engine replay in the core's form, and block keys: the names of their blocks.

Equal blocks after equal prefixes have equal keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import Trace

#: The key of a block named by the trace: its id (dense) and its index inside the id.
NamedKey = tuple[int, int]
#: The key of a block that only one request can hold: its kind, the request and the block.
OwnKey = tuple[str, int, int]
Key = NamedKey | OwnKey

#: Output tokens have no text; in labels they count up from here, this many to a request.
OUTPUT_LABEL = 1 << 40
OUTPUT_LABELS_PER_REQUEST = 4096


def _ids(trace: Trace, request: int) -> list[int]:
    start, end = trace.id_offsets[request], trace.id_offsets[request + 1]
    return [int(i) for i in trace.block_ids[start:end]]


@dataclass(slots=True)
class BlockKeys:
    """The keys of all blocks of a trace at one block size, which divides the trace's.

    Full block k of a prompt is named by the id that covers it and its index inside that id. Any other block
    (output, straddling, or prompt without an id) takes the name that the session's next turn has at its
    position, where ``continuation`` has a next turn, else a key of its own.
    """

    trace: Trace
    block_size_tokens: int
    continuation: list[int | None]

    @property
    def per_id(self) -> int:
        """Blocks an id covers."""
        return self.trace.block_size // self.block_size_tokens

    def ids(self, request: int) -> list[int]:
        """Return the dense ids of a request."""
        return _ids(self.trace, request)

    def named_blocks(self, request: int) -> int:
        """Return the number of leading blocks that lie in the prompt and are covered by the request's ids."""
        whole = int(self.trace.input_tokens[request]) // self.block_size_tokens
        start, end = self.trace.id_offsets[request], self.trace.id_offsets[request + 1]
        return min(whole, int(end - start) * self.per_id)

    def key(self, request: int, block: int) -> Key:
        """Return the key of block ``block`` of ``request``."""
        source: int | None = request
        if block >= self.named_blocks(request):
            source = self.continuation[request]
        if source is None or block >= self.named_blocks(source):
            return ("o", request, block)
        index = self.trace.id_offsets[source] + block // self.per_id
        return (int(self.trace.block_ids[index]), block % self.per_id)

    def keys(self, request: int, blocks: int) -> list[Key]:
        """Return the keys of the first ``blocks`` blocks of ``request``."""
        return [self.key(request, block) for block in range(blocks)]

    def decode(self, code: int) -> Key:
        """Return the key that the core writes as an integer (``rust/core/src/keys.rs``)."""
        if code >> 63:
            return ("o", (code >> 32) & 0x7FFF_FFFF, code & 0xFFFF_FFFF)
        return (code // self.per_id, code % self.per_id)

    def name(self, dense_id: int) -> object:
        """Return the trace's own text of a dense id."""
        return self.trace.id_names[dense_id] if len(self.trace.id_names) else dense_id

    def label(self, key: Key | None) -> str:
        """Return a key as digests of vLLM's free queue do: ``id:index``, ``o<request>:<block>``, ``-``."""
        if key is None:
            return "-"
        if len(key) == 3:
            return f"o{key[1]}:{key[2]}"
        return f"{self.name(key[0])}:{key[1]}"

    def first_token_label(self, key: Key) -> int:
        """Return the number that digests of SGLang's leaves give the first token of a page.

        A token of an id is id x tokens-an-id + its index, a token past the ids counts up from 2^40.
        """
        page, id_tokens = self.block_size_tokens, self.trace.block_size
        if len(key) == 2:
            return self._number(key[0]) * id_tokens + key[1] * page
        _, request, block = key
        n, token, ids = int(self.trace.input_tokens[request]), block * page, self.ids(request)
        if token < n and token // id_tokens < len(ids):
            return self._number(ids[token // id_tokens]) * id_tokens + token % id_tokens
        return OUTPUT_LABEL + request * OUTPUT_LABELS_PER_REQUEST + token - n

    def token_value(self, key: Key) -> int:
        """Return the number that digests of SGLang's default tree give the first token of a page.

        A token of an id is the id, a token past the ids -1 - its request.
        """
        if len(key) == 2:
            return self._number(key[0])
        _, request, block = key
        token, ids = block * self.block_size_tokens, self.ids(request)
        index = token // self.trace.block_size
        if token < int(self.trace.input_tokens[request]) and index < len(ids):
            return self._number(ids[index])
        return -1 - request

    def _number(self, dense_id: int) -> int:
        """Return the trace's own number of an id, or the dense one where the trace writes text."""
        name = self.name(dense_id)
        return dense_id if isinstance(name, str) else int(str(name))


#: No next turn, for the core.


def refuse_without_effect(
    request: ReplayRequest,
    policy: str,
    window: bool = False,
    outputs: bool = False,
    store_threshold: bool = False,
    any_block: bool = False,
    host: bool = False,
    disk: bool = False,
    cpu: bool = False,
) -> None:
    """Raise UsageError for a setting that this manager fixes itself, or that does not fit the trace."""
    trace_block = request.trace.block_size
    if not any_block and (request.block_size_tokens < 1 or trace_block % request.block_size_tokens):
        raise UsageError(
            "block size does not divide the trace's",
            where="--block-size",
            got=str(request.block_size_tokens),
            expected=f"a divisor or a multiple of {trace_block}",
        )
    if not 1 <= request.capacity_blocks < 2**31:
        raise UsageError(
            "capacity out of range",
            where="--capacity",
            got=f"{request.capacity_blocks} blocks",
            expected="1 to 2³¹ − 1 blocks",
        )
    useless = {
        "--order": request.touch_from != "tail",
        "--last-partial": request.last_partial != "drop",
        "--flat": request.discipline == "flat",
        "--window": request.window != 0 and not window,
        "--outputs": request.outputs != "prompt" and not outputs,
        "--reuse-outputs": request.reuse_outputs and (not outputs or request.outputs == "prompt"),
        "--store-threshold": request.store_threshold != 0 and not store_threshold,
        "--host-capacity": request.host_blocks != 0 and not host,
        "--write-policy": request.write_policy != "" and not host,
        "--storage": request.storage is not None and not host,
        "--disk-chunks": request.disk_blocks != 0 and not disk,
        "--cpu-chunks": request.cpu_blocks != 0 and not cpu,
        "--secondary-tier": request.secondary and not cpu,
    }
    for option, given in useless.items():
        if given:
            raise UsageError(f"has no effect with --policy {policy}", where=option)


def total_tokens(request: ReplayRequest) -> NDArray[np.int64]:
    """Return the tokens that each request has filled at its end, at least its prompt."""
    n, output = request.trace.input_tokens, request.trace.output_tokens
    if request.outputs == "prompt":
        return n
    return n + (output if request.outputs == "all" else np.maximum(output - 1, 0))


def block_keys(request: ReplayRequest) -> BlockKeys:
    """Return the keys of the trace's blocks as the trace and the request name them."""
    trace = request.trace
    turns = [None if turn < 0 else turn for turn in _continuations(request).tolist()]
    return BlockKeys(trace, request.block_size_tokens, turns)


def _continuations(request: ReplayRequest) -> NDArray[np.int32]:
    """Return the turn that names each request's outputs, negative for none."""
    if request.reuse_outputs:
        return continuations(request.trace)
    return np.full(len(request.trace), -1, np.int32)


def native_requests(request: ReplayRequest) -> _core.EngineRequests:
    """Return the requests that the core replays. Cost: the arrays are copied across the border once."""
    trace, size = request.trace, request.block_size_tokens
    per_id = trace.block_size // size
    named = np.diff(trace.id_offsets) * per_id
    turns = _continuations(request)
    keys = _core.Keys(
        trace.id_offsets.astype(np.int64),
        trace.block_ids.astype(np.uint32),
        per_id,
        np.minimum(trace.input_tokens // size, named).astype(np.uint32),
        np.where(turns < 0, np.uint32(NO_NEXT_TURN), turns.astype(np.uint32)),
    )
    return _core.EngineRequests(
        keys,
        trace.input_tokens.astype(np.uint64),
        total_tokens(request).astype(np.uint64),
        size,
        min(request.window, int(NO_NEXT_TURN)),  # no trace has more requests
        request.explain,
    )
