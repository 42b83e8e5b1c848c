"""The time of one scheduler step in integer nanoseconds, and the table that both backends read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Value, field
from kvcache_sim.model.residual_grid import Residuals
from kvcache_sim.model.shared_time import SharedTime

_FS_PER_NS = 1_000_000
#: Least number of tokens of a table for single steps, so that few tables are created.
_LEAST_TOKENS = 512


class StepBatch(Value):
    """The work of one step: prefill chunks as (new, past) token counts, and the decode sequences."""

    prefill_chunks: tuple[tuple[int, int], ...] = ()
    decode_sequences: int = 0
    decode_kv_tokens: int = 0
    decode_max_kv_tokens: int = 0


class StepTime:
    """The time model of a replica. Zero for an empty batch, monotone in every argument."""

    __slots__ = ()

    def step(self, batch: StepBatch) -> int:
        """Return the step's duration in ns, from a table for the next power of two of tokens."""
        tokens = batch.decode_sequences + sum(new for new, _ in batch.prefill_chunks)
        size = 1 << max(tokens, _LEAST_TOKENS).bit_length()
        return self.table(size, size).step(batch)

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers, for steps of up to ``max_tokens`` and ``max_sequences``."""
        raise NotImplementedError


class StepTimeTable(Value, StepTime):
    """A step-time model as integers: a base by token count plus linear terms in femtoseconds.

    ``T = base + round((max(attention, scan·longest) + rest) / 10⁶)`` with ``rest = sequence·n + past·Σ past +
    idle·n·Σ new + alongside``, ``attention = max(kv·K + spread·max(0, n·max KV − K), longest[n]·max KV) +
    pair_half·Σ (2·max(new, least_query)·past + new²)`` and ``K = max(ΣKV, least_kv·n)``. The scan, of steps
    with a prefill chunk, is the time of one core that reads the longest KV to its end, ``longest = max(max
    KV, max(past + new))``. The base is ``base_ns[N]`` of all N tokens of a step with a prefill chunk. If a
    chunk has a past, which another kernel reads, it is ``past_base_ns[N]``, unless that is empty. It is
    ``decode_base_ns[n]`` (CUDA-graph padding applied) for a pure decode step of n sequences; none need rise.
    From ``unsplit_sequences`` decode sequences on (0: never) the kernel no longer splits their KV: all
    sequences together take at least ``kv_decode·K + max(0, unsplit·max KV − ⌊unsplit_hidden / n⌋·K)``. One
    block reads to its end what is left of the longest when the others have ended.
    ``alongside`` counts once in a step with both a chunk and decodes, whose attention is a separate kernel.
    Coefficients with two values use the first one in pure decode steps. ``longest_fs`` is as long as
    ``decode_base_ns``, or empty: no such term. Grids add the non-linear part, if a source has one
    (``residuals``): ``kv[n, ΣKV // n]``, in steps with a chunk ``beside[n, ΣKV // n]``, and for each chunk
    with a past ``past[new, past]``. The sum of these is the time of a step's kernels (``kernels``). A step
    takes at least the time in which the host launches them (``launch``): ``launch_ns`` past
    ``captured_tokens`` tokens, which run without a CUDA graph. Up to these it is ``pieces_launch_ns`` with a
    prefill chunk, whose graph is in pieces, and ``graph_launch_ns`` in a pure decode step. All three add
    ``launch_sequence_ns`` per decode sequence. A GPU that has waited for a launch ends ``tail_ns``, plus
    ``tail_sequence_ns`` per decode sequence, after it (``tail``): the time of the kernels that are launched
    last. Bases include the work that data-parallel ranks do together (``shared``), as if all ranks had as
    many tokens. Over pipeline stages, ``stage_layers`` divide a step's time but for ``stage_head_ns`` of its
    tokens, which the last stage takes; ``stage_hop_ns`` lies between two stages. Empty: equal parts, no hop.
    All arithmetic is integer, so both backends agree.
    """

    base_ns: NDArray[np.int64]
    decode_base_ns: NDArray[np.int64]
    pair_half_fs: int = 0
    kv_decode_fs: int = 0
    kv_mixed_fs: int = 0
    sequence_fs: int = 0
    past_fs: int = 0
    spread_decode_fs: int = 0
    spread_mixed_fs: int = 0
    scan_fs: int = 0
    idle_fs: int = 0
    alongside_fs: int = 0
    least_kv_tokens: int = 0
    least_query_tokens: int = 0
    longest_fs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    unsplit_sequences: int = 0
    unsplit_fs: int = 0
    unsplit_hidden_fs: int = 0
    past_base_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    residuals: Residuals = Residuals()
    launch_ns: int = 0
    captured_tokens: int = 0
    pieces_launch_ns: int = 0
    graph_launch_ns: int = 0
    launch_sequence_ns: int = 0
    tail_ns: int = 0
    tail_sequence_ns: int = 0
    shared: SharedTime = SharedTime()
    stage_layers: tuple[int, ...] = ()
    stage_head_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    stage_hop_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def own_part(self) -> StepTimeTable:
        """Return the table of one rank's own part of a step: without the shared work of all ranks."""
        bases = ("base_ns", "past_base_ns", "decode_base_ns")
        unshared = {name: getattr(self, name) - self.shared.even(len(getattr(self, name))) for name in bases}
        return replace(self, **unshared, shared=SharedTime())

    def step(self, batch: StepBatch) -> int:
        """Return the step's duration in ns; IndexError past the table's token or sequence count."""
        return max(self.kernels(batch), self.launch(batch) + self.tail(batch))

    def launch(self, batch: StepBatch) -> int:
        """Return the host's time to launch the step in ns."""
        new = sum(new for new, _ in batch.prefill_chunks)
        sequences_ns = self.launch_sequence_ns * batch.decode_sequences
        if batch.decode_sequences + new > self.captured_tokens:
            return self.launch_ns + sequences_ns
        return (self.pieces_launch_ns if new else self.graph_launch_ns) + sequences_ns

    def tail(self, batch: StepBatch) -> int:
        """Return the time from the launch to the end of a step in ns, if the GPU waited for the launch."""
        return self.tail_ns + self.tail_sequence_ns * batch.decode_sequences

    def kernels(self, batch: StepBatch) -> int:
        """Return the time of the step's kernels in ns; IndexError as in ``step``."""
        n = batch.decode_sequences
        kv_tokens = max(batch.decode_kv_tokens, self.least_kv_tokens * n)
        spread = max(n * batch.decode_max_kv_tokens - kv_tokens, 0)
        alone = int(self.longest_fs[n]) * batch.decode_max_kv_tokens if len(self.longest_fs) else 0
        if 0 < self.unsplit_sequences <= n:
            hidden_fs = self.unsplit_hidden_fs // n * kv_tokens
            last_fs = max(self.unsplit_fs * batch.decode_max_kv_tokens - hidden_fs, 0)
            alone = max(alone, self.kv_decode_fs * kv_tokens + last_fs)
        if not batch.prefill_chunks:
            base = int(self.decode_base_ns[n])
            fs = max(self.kv_decode_fs * kv_tokens + self.spread_decode_fs * spread, alone)
        else:
            past = any(past for _, past in batch.prefill_chunks) and len(self.past_base_ns)
            bases = self.past_base_ns if past else self.base_ns
            base = int(bases[n + sum(new for new, _ in batch.prefill_chunks)])
            fs = max(self.kv_mixed_fs * kv_tokens + self.spread_mixed_fs * spread, alone)
            fs += self.pair_half_fs * sum(self.pairs(new, past) for new, past in batch.prefill_chunks)
            longest = max(batch.decode_max_kv_tokens, *(sum(chunk) for chunk in batch.prefill_chunks))
            fs = max(fs, self.scan_fs * longest)
            fs += self.past_fs * sum(past for _, past in batch.prefill_chunks)
            fs += self.idle_fs * n * sum(new for new, _ in batch.prefill_chunks)
            fs += self.alongside_fs * (n > 0)
        fs += self.sequence_fs * n
        residual = self.residuals.of_decodes(n, batch.decode_kv_tokens, bool(batch.prefill_chunks))
        residual += sum(self.residuals.past.at(new, past) for new, past in batch.prefill_chunks if past)
        return max(base + residual + (fs + _FS_PER_NS // 2) // _FS_PER_NS, 0)

    def pairs(self, new: int, past: int) -> int:
        """Return twice the products of a chunk's tokens with their keys; a short chunk fills its tile."""
        return 2 * max(new, self.least_query_tokens) * past + new * new

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the table itself; IndexError if it is shorter than requested."""
        if len(self.base_ns) <= max_tokens or len(self.decode_base_ns) <= max_sequences:
            raise IndexError(f"step-time table ends before {max_tokens} tokens or {max_sequences} sequences")
        return self


def chunked_ns(step_time: StepTime, step_tokens: int, tokens: int) -> int:
    """Return the time (ns) of steps of ``step_tokens`` that compute ``tokens`` prompt tokens alone."""
    full, rest = divmod(tokens, step_tokens)
    time_ns = full * step_time.step(StepBatch(((step_tokens, 0),))) if full else 0
    return time_ns + (step_time.step(StepBatch(((rest, 0),))) if rest else 0)


def zero_step_time(max_tokens: int, max_sequences: int) -> StepTimeTable:
    """Return the model in which every step takes no time (``replica.instant``)."""
    return StepTimeTable(np.zeros(max_tokens + 1, np.int64), np.zeros(max_sequences + 1, np.int64))
