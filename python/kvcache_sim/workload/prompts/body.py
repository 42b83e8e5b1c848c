"""Members of JSON bodies: a member by several names, counts, JSON as text, and names of data without text."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import blake2b
from typing import Any

#: What is not rendered, or assumed, with the number of times.
Seen = Counter[str]

_MOST_TOKENS = 2**31 - 1
_MOST_LINES = 20


def seen_lines(seen: Seen) -> list[str]:
    """Return what was seen, the most frequent first, as lines of text."""
    return [f"{number:,} {what}" for what, number in seen.most_common(_MOST_LINES)]


class BodyError(ValueError):
    """A body that is no request of its family: what is wrong, what is there, what is expected."""

    def __init__(self, what: str, got: Any = "", expected: str = "") -> None:
        super().__init__(what)
        self.what, self.got, self.expected = what, str(got)[:60], expected


def member(row: Any, *names: str) -> Any:
    """Return the first member of an object that exists and is not null; None if there is none."""
    if isinstance(row, dict):
        for name in names:
            if row.get(name) is not None:
                return row[name]
    return None


def count(row: Any, *names: str) -> int | None:
    """Return the first token count under one of the names; None without; BodyError if it is invalid."""
    value = member(row, *names)
    if value is None or (type(value) is int and 0 <= value <= _MOST_TOKENS):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _MOST_TOKENS or value != int(value):
        raise BodyError(f"{names[0]} is no count", repr(value), f"0 to {_MOST_TOKENS} tokens")
    return int(value)


def listed(value: Any, what: str) -> list[Any]:
    """Return a list, an empty one for null; BodyError for another value."""
    if value is not None and not isinstance(value, list):
        raise BodyError(f"{what} is no list", value, "[…]")
    return value or []


def json_text(value: Any) -> str:
    """Return a value as JSON in the order and the form in which chat templates write it (``tojson``)."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise BodyError("JSON nested too deep") from None


def content_name(value: Any) -> str:
    """Return a name that is equal for equal data: an image's, a file's."""
    return blake2b(json_text(value).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
