"""Prices and rules of providers' prompt caches: the tables of ``data/prices``, and the user's own.

Amounts are whole picodollars (1e-12 dollars): a price of dollars a million tokens is one of a million
picodollars a token, so sums are exact.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value, field

PICODOLLARS = 1_000_000_000_000
#: Lifetimes by their names.
TTL_NS = {"5m": 300 * NS_PER_S, "30m": 1800 * NS_PER_S, "1h": 3600 * NS_PER_S, "12h": 43_200 * NS_PER_S}
TTL_NS["24h"] = 86_400 * NS_PER_S
#: Ends of a model's name that mean the same price: dates, versions, regions.
_ENDS = r"(?:[-@](?:\d{8}|\d{4}-\d\d-\d\d|latest|v\d+).*|[:\[@].*)?"
_DATA = Path(__file__).parent / "data" / "prices"
_UNPRICED = Path(__file__).parent / "data" / "providers_without_prices.toml"


class Band(Value, forbid_unknown_fields=True):
    """Prices of prompts above a length, cached tokens counted."""

    above_prompt_tokens: int
    input: float
    output: float


class ModelPrice(Value, forbid_unknown_fields=True):
    """One row of a table: dollars a million tokens; reads and writes as multiples of ``input``.

    ``input``, None: the price is not known. ``user_turn``: ``strips`` if a plain message of the user removes
    earlier thinking, ``may strip`` if that was seen and no document says so. ``since``: the first day on
    which the row holds.
    """

    names: list[str]
    input: float | None = None
    output: float | None = None
    read: float = 1.0
    read_price: float | None = None
    write: dict[str, float] = field(default_factory=dict)
    minimum_tokens: int | None = None
    user_turn: str = ""
    since: date = date.min
    band: list[Band] = field(default_factory=list)
    unconfirmed: list[str] = field(default_factory=list)

    def picodollars(self, tokens: Tokens) -> int | None:
        """Return the price of a call; None if the model's is not known."""
        prices: Band | ModelPrice = self
        for band in self.band:
            prices = band if tokens.prompt > band.above_prompt_tokens else prices
        if prices.input is None or (prices.output is None and tokens.output):
            return None
        read = prices.input * self.read if self.read_price is None else self.read_price
        parts = [(tokens.read, read), (tokens.uncached, prices.input), (tokens.output, prices.output or 0)]
        parts += [(count, prices.input * self.write.get(ttl, 1.0)) for ttl, count in tokens.written.items()]
        return sum(count * round(price * 1_000_000) for count, price in parts)


class Tokens(Value):
    """The tokens of a call, or of several under one price; ``written`` is by lifetime (``5m``, ``1h``)."""

    read: int
    uncached: int
    written: dict[str, int] = field(default_factory=dict)
    output: int = 0

    @property
    def prompt(self) -> int:
        """The tokens of the prompt."""
        return self.read + self.uncached + sum(self.written.values())


class Provider(Value, forbid_unknown_fields=True):
    """A table: a provider's rules, with the prices of its models.

    Attributes:
        policy: Kind of cache: ``anthropic``, ``openai``, ``openai-breakpoints`` or ``deepseek``.
        default_ttl: Lifetime of what is written, unless a request says another.
        minimum_tokens: Shortest cached prefix, where the model's row names none.
        look_back_blocks: Content blocks that a breakpoint looks back; None: breakpoints do not matter.
        searched_marks: Breakpoints of the conversation that are looked at; None: all.
        most_marks: Breakpoints that a request writes.
        step_tokens: Reads are the minimum and a multiple of this; 0: to the token.
        most_ns: Longest life of an entry; None: no limit.
        unconfirmed: Rules that no source confirms.
    """

    provider: str
    policy: str
    date: date
    source: str
    model: list[ModelPrice]
    default_ttl: str = "5m"
    minimum_tokens: int = 0
    look_back_blocks: int | None = None
    searched_marks: int | None = None
    most_marks: int | None = None
    step_tokens: int = 0
    most_ns: int | None = None
    unconfirmed: list[str] = field(default_factory=list)

    def minimum(self, price: ModelPrice | None) -> int:
        """Return the shortest prefix of a model that is cached."""
        return self.minimum_tokens if price is None or price.minimum_tokens is None else price.minimum_tokens

    def stepped(self, tokens: int) -> int:
        """Return what is read of a common prefix: nothing below the minimum, else whole steps."""
        if tokens < self.minimum_tokens:
            return 0
        return tokens if not self.step_tokens else tokens // self.step_tokens * self.step_tokens


class PriceTable(Value):
    """Tables in order: of two rows for a model, the later one counts."""

    tables: list[Provider]

    def row(self, name: str, at_ns: int) -> tuple[Provider, ModelPrice] | None:
        """Return the table and the row of a model by its name, at a time since 1970; None for neither."""
        day = datetime.fromtimestamp(at_ns // NS_PER_S, UTC).date()
        found = None
        for table in self.tables:
            rows = [row for row in table.model if _names(row, name)]
            held = [row for row in rows if row.since <= day] or rows[:1]
            found = (table, held[-1]) if held else found
        return found

    def policy(self, name: str) -> Provider:
        """Return the rules of a kind of cache."""
        return next(table for table in reversed(self.tables) if table.policy == name)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:.*[./])?{re.escape(name)}{_ENDS}")


def _names(row: ModelPrice, name: str) -> bool:
    return any(_pattern(each).fullmatch(name) for each in row.names)


@cache
def packaged() -> tuple[Provider, ...]:
    """Return the packaged tables."""
    return tuple(_read(path) for path in sorted(_DATA.glob("*.toml")))


def price_table(files: Sequence[Path] = ()) -> PriceTable:
    """Return the packaged tables and then the user's, whose rows count first.

    A rule that a user's file leaves out is that of the packaged table of the same ``policy``. Raises
    UsageError for a file that is no table.
    """
    return PriceTable([*packaged(), *map(_read, files)])


def why_unpriced(provider: str) -> str:
    """Return why no table has a provider's prices; "" if nothing is known of it."""
    return str(tomllib.loads(_UNPRICED.read_text("utf-8")).get(provider, ""))


def _read(path: Path) -> Provider:
    hint = "kvcache_sim/model/data/prices/anthropic.toml has the keys"
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        if path.parent != _DATA:
            rules = {each.policy: msgspec.structs.asdict(each) for each in packaged()}
            known = rules.get(str(given.get("policy")), {})
            known.pop("model", None)
            given = {**known, "unconfirmed": [], **given}
        for row in given.get("model", ()):
            row["write"] = {name[6:]: row.pop(name) for name in list(row) if name.startswith("write_")}
        return msgspec.convert(given, Provider)
    except OSError as error:
        raise InputOutputError("cannot be read", str(path), error.strerror or "") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError("not a table of prices", where=str(path), got=str(error), hint=hint) from None
