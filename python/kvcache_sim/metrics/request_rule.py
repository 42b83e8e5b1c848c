"""Rules that select requests, for example ``input_tokens > 32000 and customer == gold``."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.workload.trace import Trace

#: Fields of a rule that are columns of ``requests``.
ROW_FIELDS = ("input_tokens", "output_tokens", "turn", "is_conversational_turn")
#: A field that is a column of the trace; any other name is a member of its rows.
PRIORITY = "priority"

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = r"\s*([A-Za-z_]\w{0,63})\s*(>=|<=|==|!=|>|<)\s*([^<>=!]{1,100}?)\s*"
_NUMBER = r"-?\d{1,15}(\.\d{1,9})?"
_EXPECTED = (
    "FIELD ==|!=|>|<|>=|<= VALUE, joined by 'and', such as 'input_tokens > 32000 and customer == gold'"
)


class Condition(Value):
    """A comparison of one field of a request with a number, or with a text (``==`` and ``!=``)."""

    field: str
    comparison: str
    value: float | str

    def holds(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the requests for which it is true; texts and numbers are not ordered."""
        compare = _COMPARE[self.comparison]
        if values.dtype != object:
            found: NDArray[np.bool_] = np.asarray(compare(values, self.value), np.bool_)
            return found
        number = not isinstance(self.value, str)
        return np.array(
            [
                bool(compare(member, self.value))
                if isinstance(member, (int, float)) == number
                else self.comparison == "!="
                for member in values
            ],
            np.bool_,
        )


class RequestRule(Value):
    """Conditions that all have to hold."""

    text: str
    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        """Return the rule as text."""
        return self.text

    @property
    def trace_fields(self) -> frozenset[str]:
        """The fields that only the trace has."""
        return frozenset(c.field for c in self.conditions) - {*ROW_FIELDS}

    def holds(
        self, rows: Mapping[str, NDArray[Any]], members: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows of ``requests``; ``members`` has the trace's fields by request."""
        true = np.ones(len(rows["request"]), np.bool_)
        for condition in self.conditions:
            column = rows[condition.field] if condition.field in ROW_FIELDS else None
            true &= condition.holds(members[condition.field][rows["request"]] if column is None else column)
        return true


def parse_request_rule(text: str) -> RequestRule:
    """Return the rule a person wrote; raises ``UsageError``."""
    conditions = []
    for part in re.split(r"\sand\s", text):
        match = re.fullmatch(_CONDITION, part)
        if match is None or len(text) > 500:
            raise UsageError("not a rule", got=repr(text[:100]), expected=_EXPECTED)
        field, comparison, value = match[1], match[2], match[3].strip("'\"")
        number = re.fullmatch(_NUMBER, value) is not None
        if not number and (comparison not in ("==", "!=") or field in (*ROW_FIELDS, PRIORITY)):
            truth = {"true": 1.0, "false": 0.0}.get(value)
            if field != "is_conversational_turn" or truth is None:
                raise UsageError("not a number", got=repr(part.strip()), expected=_EXPECTED)
            conditions.append(Condition(field, comparison, truth))
            continue
        conditions.append(Condition(field, comparison, float(value) if number else value))
    return RequestRule(text, tuple(conditions))


def trace_fields(trace: Trace, names: frozenset[str]) -> dict[str, NDArray[Any]]:
    """Return fields of a trace's requests by name; UsageError for a field that no request has.

    Members are numbers, texts or None. Cost: each row's unknown members are read once as JSON.
    """
    found: dict[str, NDArray[Any]] = {}
    members = names - {PRIORITY}
    if PRIORITY in names:
        found[PRIORITY] = trace.priority if len(trace.priority) else np.zeros(len(trace), np.int64)
    if not members:
        return found
    rows = [json.loads(f"{{{text}}}") if text else {} for text in trace.extra] or [{}] * len(trace)
    for name in sorted(members):
        values = [_plain(row.get(name)) for row in rows]
        if len(values) and all(value is None for value in values):
            raise UsageError(
                f"no request has a field {name!r}",
                where=trace.source,
                expected=f"{', '.join((*ROW_FIELDS, PRIORITY))}, or a member of the trace's JSON rows",
            )
        found[name] = np.array([*values, None], object)[:-1]  # never an array of texts
    return found


def _plain(value: Any) -> Any:
    """Return a member for comparison: numbers and texts; true is 'true', lists become None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, (int, float, str)) else None
