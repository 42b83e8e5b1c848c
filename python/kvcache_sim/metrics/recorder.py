"""The recorder: rows of finished requests and events, kept in columns as they come."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.cache.moves import Transfer
from kvcache_sim.metrics.columns import EVENT_COLUMNS, OUTCOMES, REQUEST_COLUMNS
from kvcache_sim.metrics.run import CodedText, ColumnData
from kvcache_sim.serving.sequence import SequenceState, Status

_FLUSH_ROWS = 4096


class TextCoder:
    """Gives each distinct text a code, in order of first appearance."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def code(self, word: str) -> int:
        """Return the text's code."""
        return self.words.setdefault(word, len(self.words))


class RunRecorder:
    """Keeps what happened. Cost: about 200 bytes a request, 40 an event; no object outlives its request.

    ``window_ns`` bounds the optional events (``--record all``) to [start, end); None keeps none of them.
    """

    def __init__(self, requests: int, window_ns: tuple[int, int] | None = None) -> None:
        self.window_ns = window_ns
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(requests, column.dtype) for name, column in REQUEST_COLUMNS.items()
        }
        self.columns["request"][:] = np.arange(requests)
        for name in ("machine", "first_token_ns", "finish_ns"):
            self.columns[name][:] = -1
        self.finished = 0
        self.rejected = 0
        self.input_tokens = 0
        self.cached_tokens = [0, 0, 0, 0]
        self.preemptions = 0
        self._rows: list[tuple[int, ...]] = []
        self._kinds, self._details = TextCoder(), TextCoder()
        self._events: dict[str, array[int]] = {
            name: array("i" if column.dtype == "str" else "q") for name, column in EVENT_COLUMNS.items()
        }
        #: Times of first token and finish inside the loop are ns since the start of the simulation.

    # -- what the serving floor tells

    def log_prefix_cache_event(
        self, sequence: SequenceState, machine: int, now_ns: int, outcome: int, tokens: tuple[int, int]
    ) -> None:
        """Log an outcome with (cached length, tokens left to prefill)."""
        self._event(
            now_ns,
            0,
            machine,
            "prefix_cache_event",
            sequence.request,
            OUTCOMES[outcome],
            tokens[0],
            0,
            tokens[1],
        )

    def log_prefill_start(self, sequence: SequenceState, machine: int, now_ns: int, tokens: int) -> None:
        """Log that the prefill of ``tokens`` missed tokens starts."""
        self._event(now_ns, 0, machine, "prefill_start", sequence.request, "", tokens, 0, 0)

    def log_milestone(self, kind: str, sequence: SequenceState, machine: int, now_ns: int) -> None:
        """Log a milestone, where asked for."""
        if kind == "admit" and sequence.preemptions == 0:
            self.input_tokens += sequence.prompt_num_tokens
        if self._wanted(now_ns):
            self._event(now_ns, 0, machine, kind, sequence.request, "", 0, 0, 0)

    def log_transfer(self, transfer: Transfer, machine: int) -> None:
        """Log a transfer as it is sent."""
        sent = transfer.sent
        assert sent is not None
        if self._wanted(sent.start_ns):
            duration = sent.completion_ns - sent.start_ns
            self._event(
                sent.start_ns, duration, machine, "transfer", -1, transfer.edge, 0, transfer.blocks, 0
            )

    def log_step(self, machine: int, step: tuple[int, int, int, int]) -> None:
        """Log an iteration: (begin, duration, prefill tokens, decode sequences)."""
        if self._wanted(step[0]):
            self._event(step[0], step[1], machine, "step", -1, "", step[2], step[3], 0)

    def log_eviction(self, machine: int, tier: str, now_ns: int, blocks: int) -> None:
        """Log an eviction from a tier."""
        if self._wanted(now_ns):
            self._event(now_ns, 0, machine, "evict", -1, tier, 0, blocks, 0)

    def close(self, sequence: SequenceState, machine: int) -> None:
        """Keep the row of a finished or rejected request."""
        s = sequence
        finished = s.status is Status.FINISHED
        if finished:
            self.finished += 1
            self.preemptions += s.preemptions
            for source, tokens in enumerate(
                (s.cached_gpu_tokens, s.cached_cpu_tokens, s.cached_disk_tokens, s.cached_remote_tokens)
            ):
                self.cached_tokens[source] += tokens
        else:
            self.rejected += 1
        self._rows.append(
            (
                s.request,
                machine,
                s.session,
                s.turn,
                s.is_conversational_turn,
                0 if finished else 1,
                max(s.outcome, 0),
                s.arrival_ns,
                s.queue_ns,
                s.lookup_ns,
                s.fetch_ns,
                s.fetch_room_ns,
                s.fetch_cpu_ns,
                s.fetch_disk_ns,
                s.fetch_remote_ns,
                s.prefill_ns,
                s.batch_stall_ns,
                s.first_decode_ns,
                s.first_token_ns,
                s.finish_ns,
                s.prompt_num_tokens,
                s.output_tokens,
                s.cached_prefix_length_used,
                s.cached_gpu_tokens,
                s.cached_cpu_tokens,
                s.cached_disk_tokens,
                s.cached_remote_tokens,
                s.num_tokens_requiring_prefill,
                s.recomputed_tokens,
                s.preemptions,
            )
        )
        if len(self._rows) == _FLUSH_ROWS:
            self._flush()

    # -- what a finished run needs

    def request_columns(self) -> dict[str, ColumnData]:
        """Return the columns of ``requests``."""
        self._flush()
        return dict(self.columns)

    def event_columns(self) -> dict[str, ColumnData]:
        """Return the columns of ``events`` in time order (ties as they were logged)."""
        times = np.frombuffer(self._events["time_ns"], np.int64)
        order = np.argsort(times, kind="stable")
        columns: dict[str, ColumnData] = {}
        for name, column in EVENT_COLUMNS.items():
            if column.dtype == "str":
                codes = np.frombuffer(self._events[name], np.int32)[order]
                coder = self._kinds if name == "kind" else self._details
                columns[name] = CodedText(codes, tuple(coder.words))
            else:
                columns[name] = np.frombuffer(self._events[name], np.int64)[order].astype(column.dtype)
        return columns

    def _wanted(self, now_ns: int) -> bool:
        return self.window_ns is not None and self.window_ns[0] <= now_ns < self.window_ns[1]

    def _event(self, *values: Any) -> None:
        time_ns, duration_ns, machine, kind, request, detail, tokens, blocks, left = values
        e = self._events
        e["time_ns"].append(time_ns)
        e["duration_ns"].append(duration_ns)
        e["machine"].append(machine)
        e["kind"].append(self._kinds.code(kind))
        e["request"].append(request)
        e["detail"].append(self._details.code(detail))
        e["tokens"].append(tokens)
        e["blocks"].append(blocks)
        e["left_tokens"].append(left)

    def _flush(self) -> None:
        if not self._rows:
            return
        block = np.array(self._rows, np.int64)
        index = block[:, 0]
        for position, name in enumerate(REQUEST_COLUMNS):
            self.columns[name][index] = block[:, position]
        self._rows.clear()
