"""Dates in files as ns since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kvcache_sim.base.units import NS_PER_S

#: Smaller numbers are seconds since 1970; then ms, us and ns: a date from 1973 to 5138 in each unit.
_SECONDS, _MS, _US = 1e11, 1e14, 1e17
_NS_PER_US = 1000
_MOST_NS = 10**19


def time_ns(value: Any) -> int | None:
    """Return a date since 1970 in ns: a number of s, ms, us or ns by its size, or ISO 8601; None otherwise.

    A text without a time zone is interpreted as UTC; fractions beyond microseconds are cut. Dates before
    1653 and after 2286 are none.
    """
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value.strip())
        except ValueError:
            return _number(value)
        span = (date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        found = (span.days * 86_400 + span.seconds) * NS_PER_S + span.microseconds * _NS_PER_US
        return found if abs(found) < _MOST_NS else None
    return None if isinstance(value, bool) else _scaled(value)


def _number(text: str) -> int | None:
    try:
        return _scaled(float(text))
    except ValueError:
        return None


def _scaled(value: Any) -> int | None:
    if not isinstance(value, int | float) or not 0 <= value < 1e19:
        return None
    if value < _SECONDS:
        return round(value * 1_000_000) * _NS_PER_US
    if value < _MS:
        return round(value * 1000) * _NS_PER_US
    return int(value) * _NS_PER_US if value < _US else int(value)
