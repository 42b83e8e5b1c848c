"""Fields with units: parsers of a scenario's values, and renderers for the resolved scenario."""

from __future__ import annotations

import re
from collections.abc import Callable
from sys import float_info
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_rate_bytes_per_s, parse_size_bytes, parse_time_ns
from kvcache_sim.metrics.measure_settings import Edge
from kvcache_sim.metrics.request_rule import RequestRule, parse_request_rule
from kvcache_sim.scenario.section import Quantity, quantity

_COUNTED = r"\s*([0-9][0-9_]*)\s*(block|token)s?\s*"
#: Most tokens, sequences or blocks: 2³¹ − 1, so that sums stay within 64-bit arithmetic.
MAX_COUNT = 2**31 - 1
#: The largest finite number.
MAX_FLOAT = float_info.max
_CAPACITY = "blocks (16384 blocks), tokens (262144 tokens), a size (80GiB) or unbounded"


class Capacity(NamedTuple):
    """Capacity of a tier as written: blocks, bytes, tokens, ``auto``, or none of them (unbounded)."""

    blocks: int | None = None
    size_bytes: int | None = None
    #: The GPU memory left after weights and activations (gpu only).
    auto: bool = False
    tokens: int | None = None

    def __str__(self) -> str:
        """Return the capacity in scenario syntax."""
        if self.auto:
            return "auto"
        if self.blocks is not None:
            return f"{self.blocks} blocks"
        if self.tokens is not None:
            return f"{self.tokens} tokens"
        return "unbounded" if self.size_bytes is None else render_size(self.size_bytes)


def parse_capacity(value: object) -> Capacity:
    """Parse a capacity such as ``16384 blocks``, ``80GiB`` or ``unbounded``; UsageError otherwise."""
    text = _text(value, _CAPACITY)
    if text in ("unbounded", "auto"):
        return Capacity(auto=text == "auto")
    counted = re.fullmatch(_COUNTED, text)
    if counted is not None:
        number = int(counted[1])
        capacity = Capacity(tokens=number) if counted[2] == "token" else Capacity(blocks=number)
    else:
        capacity = Capacity(size_bytes=parse_size_bytes(text))
    if 0 in (capacity.blocks, capacity.size_bytes, capacity.tokens):
        raise UsageError(
            "zero capacity", got=repr(text), expected=_CAPACITY, hint="leave the tier out instead"
        )
    if (capacity.blocks or capacity.tokens or 0) > MAX_COUNT:
        expected = f"at most {MAX_COUNT} {'blocks' if capacity.blocks else 'tokens'}"
        raise UsageError("capacity out of range", got=repr(text), expected=expected)
    return capacity


def _text(value: object, expected: str) -> str:
    if isinstance(value, str):
        return value
    what = "a bare number has no unit" if isinstance(value, (int, float)) else "not a quantity"
    raise UsageError(what, got=repr(value), expected=expected)


def render_size(count: int) -> str:
    """Return a size in bytes in scenario syntax, exactly: the shortest of 2-based and 10-based units."""
    written = [f"{count // scale}{unit}" for scale, unit in _SIZES if count and count % scale == 0]
    return min([*written, f"{count}B"], key=len)


_SIZES = (
    *((1024**power, f"{prefix}iB") for power, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "K"))),
    *((1000**power, f"{prefix}B") for power, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "k"))),
)


def render_time(count: int) -> str:
    """Return a time in ns in scenario syntax, exactly: ``1500us``."""
    for scale, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if count and count % scale == 0:
            return f"{count // scale}{unit}"
    return f"{count}ns"


def _render_rate(count: int) -> str:
    for scale, unit in ((10**9, "GB/s"), (10**6, "MB/s")):
        if count % scale == 0:
            return f"{count // scale}{unit}"
    return f"{count}B/s"


def parse_edge(value: object) -> Edge:
    """Parse the part of a run to leave out: ``auto``, ``10%``, ``5m`` or ``1000 requests``."""
    expected = "auto, a share such as 10%, a time such as 5m, or a number such as 1000 requests"
    text = _text(value, expected).strip()
    if text == "auto":
        return Edge(auto=True)
    if (percent := re.fullmatch(_PERCENT, text)) and float(percent[1]) < 100:
        return Edge(share=float(percent[1]) / 100)
    if requests := re.fullmatch(_REQUESTS, text):
        return Edge(requests=int(requests[1]))
    try:
        return Edge(time_ns=parse_time_ns(text))
    except UsageError:
        raise UsageError("not a part of a run", got=repr(text), expected=expected) from None


def _render_edge(edge: Edge) -> str:
    if edge.auto:
        return "auto"
    if edge.share is not None:
        return f"{edge.share * 100:.12g}%"
    return f"{edge.requests} requests" if edge.time_ns is None else render_time(edge.time_ns)


_PERCENT = r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%"
_REQUESTS = r"([0-9]{1,9})\s*requests?"


def _parse_rule(value: object) -> RequestRule:
    return parse_request_rule(_text(value, "a rule such as 'input_tokens > 32000'"))


#: A context to be determined: the longest that the model has and the GPU holds.
AUTO_CONTEXT = -1


def _parse_context(value: object) -> int:
    """Parse the most tokens of a prompt and its answer; ``auto`` as -1."""
    expected = f"a whole number of tokens from 2 to {1 << 31}, or auto (-1)"
    if value == "auto":
        return AUTO_CONTEXT
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (isinstance(value, int) and whole and (value == AUTO_CONTEXT or 2 <= value <= 1 << 31)):
        raise UsageError("not usable", got=repr(value)[:60], expected=expected)
    return value


def _render_context(tokens: int) -> int | str:
    return "auto" if tokens == AUTO_CONTEXT else tokens


def _number(
    parse: Callable[[str], int], expected: str, render: Callable[[int], str], least: int = 0
) -> Quantity:
    """Return the type of a whole number that is written with its unit, from ``least`` on."""

    def parsed(value: object) -> int:
        number = parse(_text(value, expected))
        if number < least:
            raise UsageError("not usable", got=repr(value), expected=f"at least {render(least)}")
        return number

    return quantity(int, parsed, render)


if TYPE_CHECKING:
    DurationNs: TypeAlias = int
    PositiveNs: TypeAlias = int
    IntervalNs: TypeAlias = int
    PositiveBytes: TypeAlias = int
    RateBytesPerS: TypeAlias = int
    CapacityField: TypeAlias = Capacity
    ContextField: TypeAlias = int
    EdgeField: TypeAlias = Edge
    RequestRuleField: TypeAlias = RequestRule
else:
    _TIME = parse_time_ns, "a time with its unit, such as 250us or 3s", render_time
    _SIZE = parse_size_bytes, "a size with its unit, such as 128KiB", render_size
    _RATE = parse_rate_bytes_per_s, "a rate with its unit, such as 25GB/s or 400Gb/s", _render_rate
    #: Times with their units; internally integer ns.
    DurationNs, PositiveNs, IntervalNs = (
        _number(*_TIME),
        _number(*_TIME, least=1),
        _number(*_TIME, least=10**6),
    )
    #: A size with its unit; internally bytes.
    PositiveBytes = _number(*_SIZE, least=1)
    #: A rate with its unit; internally bytes per second.
    RateBytesPerS = _number(*_RATE)
    #: Capacity of a tier; most tokens of a prompt and its answer; part of a run's start or end to leave out;
    #: rule that selects requests.
    CapacityField = quantity(Capacity, parse_capacity, str)
    ContextField = quantity(int, _parse_context, _render_context, "integer", "string")
    EdgeField = quantity(Edge, parse_edge, _render_edge)
    RequestRuleField = quantity(RequestRule, _parse_rule, str)

#: Whole numbers of tokens, blocks, requests and machines.
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Machines = Annotated[int, Meta(ge=1, le=4096)]
#: Any finite number.
Finite = Annotated[float, Meta(ge=-MAX_FLOAT, le=MAX_FLOAT)]
