"""Block keys: names of a request's blocks; equal blocks after equal prefixes have equal keys."""

from __future__ import annotations

from dataclasses import dataclass

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
