"""The parts of TTFT: one row each, from which columns, sums, checks, pictures and lanes follow."""

from __future__ import annotations

from typing import NamedTuple


class TtftPart(NamedTuple):
    """One part of TTFT.

    Args:
        name: Its key in the summary; the column ``{name}_ns`` holds it.
        meaning: Meaning of the column.
        colour: Color in pictures; None for a part that is drawn as its own parts.
        after_admission: True if it lies between the first admission and the first token.
        only_if_any: True if the summary on the terminal leaves it out when it is 0.
    """

    name: str
    meaning: str
    colour: str | None
    after_admission: bool
    only_if_any: bool = False

    @property
    def column(self) -> str:
        """The column of ``requests`` that holds it, in ns."""
        return f"{self.name}_ns"

    @property
    def words(self) -> str:
        """Its name in pictures and on the timeline."""
        return self.name.replace("_", " ")


#: In the order of a request's lifecycle; the columns sum exactly to first_token_ns - arrival_ns (I8).
ROWS: list[TtftPart] = [
    TtftPart("client", "between the client and the scheduler: HTTP, tokenising", "#e39ac0", False),
    TtftPart(
        "queue",
        "waiting for admission or for the next step, preemptions before the first token included",
        "#6b7785",
        False,
    ),
    TtftPart("lookup", "looking the prefix up", "#7fbf4d", False),
    TtftPart("fetch", "waiting for KV or for free blocks: the sum of the four parts below", None, True),
    TtftPart("prefill", "computing the missed part, batch mates' stalls included", "#d1495b", True),
    TtftPart("first_decode", "first decode step, where the prefill was skipped whole", "#3ec9d6", True),
    TtftPart(
        "handover",
        "from the prefill machine's last chunk until the KV was on the decode machine",
        "#4b4fa8",
        True,
        only_if_any=True,
    ),
]


def columns_before_admission() -> list[str]:
    """Return the columns of the parts between a request's arrival and its first admission."""
    return [part.column for part in ROWS if not part.after_admission]
