"""Stand-ins of SGLang's own Scheduler: its pools as counts of tokens, kinds of batches, metrics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from engine_oracles import sglang_tree, stubs
from engine_oracles.stubs import Real


class Ordered(dict[Any, None]):
    """A set in the order of its members' coming."""

    def __init__(self, members: Any = ()) -> None:
        super().__init__(dict.fromkeys(members))

    def add(self, member: Any) -> None:
        self[member] = None


class Times(stubs.Anything):
    """Times of a request, of which that of its last entry in the queue decides."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def set_wait_queue_entry_time(self) -> None:
        self.engine.entries += 1
        self.wait_queue_entry_time = self.engine.entries


class Captured(int):
    """Hidden states, of which none is returned."""

    def need_capture(self) -> bool:
        return False


class Mode:
    """A batch's kind."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_extend(self) -> bool:
        return self.name != "DECODE"

    def is_decode(self) -> bool:
        return self.name == "DECODE"

    def is_extend_without_speculative(self) -> bool:
        return self.is_extend()


class Host(sglang_tree.Capacity):
    """The host's pool, whose transfers are the KV alone."""

    def alloc(self, tokens: int, **_: Any) -> Any:
        return super().alloc(tokens)

    def layout_lease(self) -> Any:
        return nullcontext()

    def resolve_host_transfers(self, *_: Any, **__: Any) -> None: ...


class Reporter(stubs.Anything):
    """Metrics, of which the scheduler adds up two."""

    num_generated_tokens = forward_ct_decode = 0


def pool(real: Real, page: int, tokens: int) -> Any:
    """Return the device's allocator: the engine's base class over a number of free tokens."""

    class Pool(real.allocator.BaseTokenToKVPoolAllocator):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.page_size, self.device, self.free_tokens, self.free_group = page, "cpu", tokens, None
            self.size = tokens

        def _paged(self, count: int) -> int:
            return -(-count // page) * page

        def available_size(self) -> int:
            return self.free_tokens

        def alloc(self, need: int) -> Any:
            return self._taken(need, need)

        def _taken(self, need: int, result: int) -> Any:
            if need > self.free_tokens:
                return None
            self.free_tokens -= need
            return stubs.tensor([0] * result)

        def alloc_extend(self, _: Any, before: Any, __: Any, after: Any, ___: Any, tokens: int) -> Any:
            need = sum(self._paged(int(b)) - self._paged(int(a)) for a, b in zip(before, after, strict=True))
            return self._taken(need, tokens)

        def alloc_decode(self, _: Any, lengths: Any, __: Any) -> Any:
            return self._taken(sum(page for n in lengths if (int(n) - 1) % page == 0), len(lengths))

        def free(self, indices: Any) -> None:
            self.free_tokens += self._paged(len(indices))

        def free_segment(self, indices: Any, start_pos: int = 0) -> None:
            end = start_pos + len(indices)
            self.free_tokens += self._paged(end) - self._paged(start_pos)

        def free_segments(self, segments: Any) -> None:
            for indices, start in segments:
                self.free_segment(indices, start)

        def free_group_begin(self) -> None: ...
        def free_group_end(self) -> None: ...
        def clear(self) -> None: ...
        def set_hicache_transfer_done_event(self, *_: Any) -> None: ...

    Pool.__abstractmethods__ = frozenset()
    return Pool()
