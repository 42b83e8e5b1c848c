"""Suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable


def close_matches(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return up to ``n`` of the known names that are most similar to a word, the most similar first.

    Same result as ``difflib.get_close_matches``, which is imported only here, when a name is unknown.
    """
    import difflib

    return difflib.get_close_matches(word, list(known), n, cutoff)
