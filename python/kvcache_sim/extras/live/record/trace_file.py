"""The trace of a recording: rows as requests end, on disk within the second, sorted by arrival at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from kvcache_sim.base.errors import InputOutputError, OutputExistsError
from kvcache_sim.base.output import refuse_existing
from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.extras.live.record.observed import Observed
from kvcache_sim.extras.live.tokenizer import Tokenizer
from kvcache_sim.workload.imports.naming import salted_ids
from kvcache_sim.workload.prompts.body import BodyError, Seen
from kvcache_sim.workload.prompts.usage import Usage, usage_of
from kvcache_sim.workload.toolbox.write import ms


class TraceFile:
    """Writes ``path.part``, rows in order of their ends; ``close`` sorts them by arrival into ``path``.

    After a crash ``path.part`` is a trace of the requests that ended up to a second before; read it with
    ``--time-order sort``.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer, block_size: int, salt: bytes, force: bool) -> None:
        refuse_existing(path, force)
        self.path, self.part = path, path.with_name(f"{path.name}.part")
        self._tokenizer, self._block_size, self._salt = tokenizer, block_size, salt
        try:
            if force:
                self.part.unlink(missing_ok=True)
            self._file = self.part.open("xb")
        except FileExistsError:
            hint = "simulate it with --set trace.time_order=sort; --force replaces it"
            raise OutputExistsError(
                "left by a recording that was cut off", str(self.part), hint=hint
            ) from None
        except OSError as error:
            raise InputOutputError("cannot be written", str(path), error.strerror or "") from None
        #: Location of each row: (arrival, offset, bytes).
        self._rows: list[tuple[int, int, int]] = []
        self.skipped = 0
        #: What prompts have that is not rendered.
        self.seen = Seen()

    def add(self, observed: Observed, start_ns: int) -> None:
        """Write the row of a finished request; refused and unreadable requests are only counted."""
        tokens = observed.tokens(self._tokenizer, self.seen)
        if tokens is None or not tokens[0] or not 200 <= observed.status < 300:
            self.skipped += 1
            return
        line = msgspec.json.encode(self._row(observed, *tokens, start_ns)) + b"\n"
        self._rows.append((observed.arrival_ns, self._file.tell(), len(line)))
        self._file.write(line)

    def _row(self, o: Observed, prompt: list[int], answer: list[int], start_ns: int) -> dict[str, Any]:
        usage = _usage(o.answer.usage)
        inputs = usage.input_tokens or len(prompt)
        outputs = usage.output_tokens or len(answer) or len(o.tokens_ns)
        same_tokens = inputs == len(
            prompt
        )  # else the engine has another tokenizer, and answers get no block ids
        tokens = [*prompt, *answer][: inputs + outputs] if same_tokens else prompt[:inputs]
        row: dict[str, Any] = {
            "timestamp": msgspec.Raw(ms(o.arrival_ns - start_ns).encode()),
            "input_length": inputs,
            "output_length": outputs,
            "hash_ids": salted_ids(tokens, self._block_size, self._salt),
        }
        if same_tokens and len(answer):
            row["named_length"] = len(tokens)
        if usage.cached_tokens is not None:
            row["cached_tokens"] = usage.cached_tokens
        if o.tokens_ns:
            row["ttft_ms"] = round((o.tokens_ns[0] - o.arrival_ns) / NS_PER_MS, 3)
            row["token_ms"] = [round((at - o.arrival_ns) / NS_PER_MS, 3) for at in o.tokens_ns]
        return row

    def abandon(self) -> None:
        """Close the file and remove it unless it has rows."""
        self._file.close()
        if not self._rows:
            self.part.unlink(missing_ok=True)

    def flush(self) -> None:
        """Flush the file to disk."""
        self._file.flush()

    def close(self) -> int:
        """Write the rows in order of arrival under the file's own name; return their number."""
        self._file.close()
        whole = self.part.read_bytes()
        ordered = b"".join(whole[offset : offset + size] for _, offset, size in sorted(self._rows))
        self.part.write_bytes(ordered)
        os.replace(self.part, self.path)
        return len(self._rows)


def _usage(row: Any) -> Usage:
    """Return the counts of an answer; none if they are no counts."""
    try:
        return usage_of(row)
    except BodyError:
        return Usage(None, None, None)
