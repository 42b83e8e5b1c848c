"""Settings of the trace readers."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption

OnBadRow = Literal["error", "skip"]
TimeOrder = Literal["error", "sort", "keep"]
MissingIds = Literal["fill", "leave"]
Turns = Literal["delta", "whole"]


#: Default bytes per token: English text in the vocabularies of 2024 has 4.0 to 4.7, code and Chinese text
#: about 3.
ESTIMATED_BYTES = 4


class ReadSettings(Value):
    """The reader's options; the defaults refuse ambiguous data."""

    #: Tokens per id; None uses the format's own (512 for Mooncake, 16 for Bailian, the stated size of a WEKA
    #: file).
    block_size: int | None = None
    #: Stop at the first bad row, or count and skip bad rows.
    on_bad_row: OnBadRow = "error"
    #: Name of the format; None detects it from the first bytes.
    format: str | None = None
    #: A row earlier than the previous row: refuse, sort (stable), or keep the order of the file.
    time_order: TimeOrder = "error"
    #: Rows without block ids get them from their session and turn, or unique ones; ``leave`` adds none.
    missing_ids: MissingIds = "fill"
    #: Keep the text of members without a column (``Trace.extra``), for writing the trace again.
    keep_unknown: bool = False
    #: Row members that are part of each block's key, such as ``cache_salt`` (see ``extra_keys``).
    extra_keys: tuple[str, ...] = ()
    #: For formats with lengths in bytes (LMCache, plain text): bytes per token; None: 4, an estimate.
    bytes_per_token: int | None = None
    #: For texts: path of a local tokenizer.json (package ``tokenizers``); None estimates lengths.
    tokenizer: str | None = None
    #: For chats that end without an answer: its tokens where their request has no ``max_tokens``; None: such
    #: a chat holds no request for its last message.
    answer_tokens: int | None = None

    #: Later rows of a session are its new turn alone, or whole prompts; None: their ids decide.
    turns: Turns | None = None

    #: Compute the SHA-256 of the file; without it ``Trace.sha256`` is empty, and long traces are read faster.
    digest: bool = True

    #: Share and seed of a sample of the ids: only these are read, for a replay that takes rows as they come.
    sample: tuple[float, int] | None = None

    #: For traces without block ids and sessions: assumed prefix sharing of their prompts; None: none.
    prefixes: PrefixAssumption | None = None

    @property
    def keeps_members(self) -> bool:
        """True if members without a column are read."""
        return self.keep_unknown or bool(self.extra_keys)

    @property
    def token_bytes(self) -> int:
        """Bytes per token in the absence of a tokenizer."""
        return self.bytes_per_token or ESTIMATED_BYTES

    @property
    def token_bytes_said(self) -> str:
        """The note on lengths that were counted in bytes."""
        if self.bytes_per_token is not None:
            return f"bytes a token: {self.bytes_per_token}"
        return (
            f"estimated at {ESTIMATED_BYTES} bytes a token; measured, English and code come out 10 % too "
            "long, other texts 35 % too short (rows of numbers) to 44 % too long (Russian)"
        )

    def __post_init__(self) -> None:
        """Refuse values out of range (``UsageError``)."""
        for name in ("block_size", "bytes_per_token", "answer_tokens"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 1 << 20:
                raise UsageError(
                    f"{name} out of range",
                    where=name,
                    got=str(value),
                    expected="1 to 1048576 tokens or bytes",
                )
        for name, allowed in (
            ("on_bad_row", ("error", "skip")),
            ("time_order", ("error", "sort", "keep")),
            ("missing_ids", ("fill", "leave")),
        ):
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f"unknown {name}", where=name, got=repr(getattr(self, name)), expected=" | ".join(allowed)
                )
        if self.turns not in (None, "delta", "whole"):
            raise UsageError("unknown turns", where="turns", got=repr(self.turns), expected="delta | whole")
