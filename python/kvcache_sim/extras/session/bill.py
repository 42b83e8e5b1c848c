"""The bill of sessions: tokens and dollars by model, measured and predicted, and the cost of each break."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kvcache_sim.base.values import Value
from kvcache_sim.extras.session.calls import Call, Counts, Predicted
from kvcache_sim.model.prices import ModelPrice, PriceTable, Tokens

#: The provider's label by the cause that is meant; causes of time and reach have a label without a kind.
_LABELS = {
    "model": "model_changed",
    "tools": "tools_changed",
    "system": "system_changed",
    "compaction": "messages_changed",
    "edit": "messages_changed",
    "user turn": "messages_changed",
    "parameters": "unavailable",
    **dict.fromkeys(("ttl", "look-back", "concurrent", "below minimum"), ""),
}
#: Labels that are no evidence of a change.
_NO_EVIDENCE = ("previous_message_not_found", "unavailable")
_NS_A_DAY = 86_400 * 10**9
_NONE = Counts(0, 0)


class Line(Value):
    """The sums of a model's calls; ``picodollars``, None: its price is not known."""

    model: str
    calls: int
    measured: Counts
    predicted: Counts
    picodollars: int | None
    predicted_picodollars: int | None


class Break(Value):
    """A call that read less than the calls before left.

    ``agrees``: the provider's label names the same cause; None: there is no label, or it is no evidence.
    ``picodollars`` are the cost of its lost tokens: billed again instead of read.
    """

    call: Call
    predicted: Predicted
    picodollars: int | None
    agrees: bool | None


class Prices:
    """Prices of calls by a table: the row of a model on a day is found once.

    ``output``: answers are part of the bill, which they are if the log counts all of them.
    """

    def __init__(self, table: PriceTable, output: bool) -> None:
        self._table, self.output = table, output
        self._rows: dict[tuple[str, int], ModelPrice | None] = {}

    def of(self, call: Call, counts: Counts) -> int | None:
        """Return the price of a call with these counts, in picodollars; None if it is not known."""
        key = (call.model, call.start_ns // _NS_A_DAY)
        if key not in self._rows:
            found = self._table.row(call.model, call.start_ns)
            self._rows[key] = None if found is None else found[1]
        row = self._rows[key]
        written = {"5m": counts.write_5m, "1h": counts.write_1h, "30m": counts.write_30m}
        answer = (measured(call).output or 0) if self.output else 0
        return None if row is None else row.picodollars(Tokens(counts.read, counts.uncached, written, answer))

    def lost(self, call: Call, each: Predicted) -> int | None:
        """Return the cost of a break: the price of a call, less that of reading the tokens that it lost."""
        counts = counts_of(each) if call.counts is None else call.counts
        tokens = left = each.lost_tokens
        rest: list[int] = []
        for count in (counts.write_5m, counts.write_1h, counts.write_30m, counts.uncached):
            rest.append(count - min(count, left))
            left -= min(count, left)
        without = Counts(counts.read + tokens - left, rest[3], rest[0], rest[1], write_30m=rest[2])
        read = self.of(call, without)
        billed = self.of(call, counts)
        return None if billed is None or read is None else billed - read


class Bill(Value):
    """Calls in order of time with the prediction of each, and their sums.

    ``lines`` are by model, the dearest first; ``breaks`` in order of time; ``exact`` are the calls after the
    first of a conversation whose predicted read is the measured one, of ``later``.
    """

    calls: tuple[Call, ...]
    predicted: tuple[Predicted, ...]
    lines: tuple[Line, ...]
    breaks: tuple[Break, ...]
    exact: int
    later: int
    has_output: bool
    said: tuple[str, ...] = ()

    @property
    def picodollars(self) -> int:
        """The measured bill; models without a price are left out."""
        return sum(line.picodollars or 0 for line in self.lines)

    @property
    def predicted_picodollars(self) -> int:
        """The predicted bill; models without a price are left out."""
        return sum(line.predicted_picodollars or 0 for line in self.lines)


def bill_of(
    calls: Sequence[Call], predicted: Sequence[Predicted], table: PriceTable, said: Sequence[str] = ()
) -> Bill:
    """Return the bill of calls with their predictions, in the same order."""
    prices = Prices(table, counts_output(calls))
    pairs = list(zip(calls, predicted, strict=True))
    later = [(call, each) for call, each in pairs if each.cause != "first"]
    breaks = (
        Break(call, each, prices.lost(call, each), _agrees(call, each))
        for call, each in pairs
        if each.is_break
    )
    models = dict.fromkeys(call.model for call in calls)
    lines = [_line(model, [pair for pair in pairs if pair[0].model == model], prices) for model in models]
    return Bill(
        tuple(calls),
        tuple(predicted),
        tuple(sorted(lines, key=lambda line: -(line.picodollars or 0))),
        tuple(breaks),
        sum(measured(call).read == each.read for call, each in later),
        len(later),
        prices.output,
        tuple(said),
    )


def most_at_once(bill: Bill) -> int:
    """Return the most sessions that had begun and not ended at a time."""
    ends: dict[str, list[int]] = {}
    for call in bill.calls:
        ends.setdefault(call.conversation.session, [call.start_ns, call.first_ns])[1] = call.first_ns
    starts = [(start, 1) for start, _ in ends.values()]
    return max(accumulate(step for _, step in sorted([*starts, *((end, -1) for _, end in ends.values())])))


def counts_of(predicted: Predicted) -> Counts:
    """Return what is predicted of a call as counts."""
    written = predicted.write_5m, predicted.write_1h
    return Counts(predicted.read, predicted.uncached, *written, write_30m=predicted.write_30m)


def counts_output(calls: Sequence[Call]) -> bool:
    """Return True if the log counts the whole answer of every call."""
    return all(measured(call).output is not None for call in calls)


def measured(call: Call) -> Counts:
    """Return the counts of a call's log; zeros where it has none."""
    return _NONE if call.counts is None else call.counts


def _line(model: str, pairs: Sequence[tuple[Call, Predicted]], prices: Prices) -> Line:
    counted = [measured(call) for call, _ in pairs]
    expected = [counts_of(each) for _, each in pairs]
    return Line(
        model,
        len(pairs),
        sum_of(counted),
        sum_of(expected),
        total_of([prices.of(call, measured(call)) for call, _ in pairs]),
        total_of([prices.of(call, counts) for (call, _), counts in zip(pairs, expected, strict=True)]),
    )


def sum_of(counts: Sequence[Counts]) -> Counts:
    """Return the sums of counts."""
    return Counts(
        sum(each.read for each in counts),
        sum(each.uncached for each in counts),
        sum(each.write_5m for each in counts),
        sum(each.write_1h for each in counts),
        sum(each.output or 0 for each in counts),
        sum(each.write_30m for each in counts),
    )


def total_of(prices: Sequence[int | None]) -> int | None:
    """Return the sum of prices; None if one is not known."""
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def _agrees(call: Call, predicted: Predicted) -> bool | None:
    label = call.label
    if label is None or predicted.is_by_label or predicted.cause not in _LABELS:
        return None
    meant = _LABELS[predicted.cause]
    if label.kind.startswith(_NO_EVIDENCE):
        return True if meant == label.kind else None
    return label.kind == meant
