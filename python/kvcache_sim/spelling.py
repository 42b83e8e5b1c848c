"""What somebody may have meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def close_matches(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return up to ``n`` of the known names that are most like a word, the most alike first.

    As ``difflib.get_close_matches``, which is imported when a name is wrong.
    """
    import difflib

    return difflib.get_close_matches(word, list(known), n, cutoff)
