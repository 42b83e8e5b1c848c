"""The bill of sessions as one screen of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from kvcache_sim.extras.session.bill import Bill, Line, measured
from kvcache_sim.extras.session.breaks import causes_of, costliest
from kvcache_sim.extras.session.what_if import WhatIf
from kvcache_sim.model.prices import PICODOLLARS
from kvcache_sim.report.picture import Table
from kvcache_sim.report.plain_table import plain_sentences, plain_table

_COSTLIEST = 5


def screen(bill: Bill, what_if: Sequence[WhatIf] = ()) -> str:
    """Return the bill as text, and those of edited sessions."""
    parts = [_subject(bill), plain_table(models_table(bill)), plain_sentences(sentences(bill))]
    if bill.breaks:
        parts += [
            plain_table(causes_table(bill)),
            "the costliest",
            plain_table(costliest_table(bill, _COSTLIEST)),
        ]
    else:
        parts.append("no call read less than the calls before left")
    if what_if:
        parts += [plain_table(what_if_table(what_if)), plain_sentences(given(what_if))]
    return "\n\n".join(parts)


def _subject(bill: Bill) -> str:
    sessions = {call.conversation.session for call in bill.calls}
    chains = {call.conversation.chain for call in bill.calls}
    days = [clock(call.start_ns)[:10] for call in (bill.calls[0], bill.calls[-1])]
    when = " to ".join(dict.fromkeys(days))
    counts = {"session": len(sessions), "conversation": len(chains), "call": len(bill.calls)}
    return f"{when}: " + ", ".join(f"{count:,} {word}{'s' * (count != 1)}" for word, count in counts.items())


def models_table(bill: Bill) -> Table:
    """Return tokens and dollars by model as the log measured them, with their sum."""
    rows = [_row(line) for line in bill.lines]
    if len(rows) > 1:
        sums = [sum(values) for values in zip(*([*_counts(line)] for line in bill.lines), strict=True)]
        rows.append(("all", *(f"{value:,}" for value in sums), dollars(bill.picodollars)))
    return Table(("measured", "calls", "tokens read", "written", "uncached", "dollars"), tuple(rows))


def _row(line: Line) -> tuple[str, ...]:
    return (line.model, *(f"{value:,}" for value in _counts(line)), dollars(line.picodollars))


def _counts(line: Line) -> tuple[int, int, int, int]:
    return line.calls, line.measured.read, line.measured.written, line.measured.uncached


def headline(bill: Bill) -> str:
    """Return what the calls cost, and what of it calls that read less than before."""
    one = len(bill.calls) == 1
    cost = f"{len(bill.calls):,} {'call costs' if one else 'calls cost'} {dollars(bill.picodollars)}"
    if not bill.breaks:
        return f"{cost}; none read less than was cached before"
    lost = sum(each.predicted.lost_tokens for each in bill.breaks)
    more = dollars(sum(each.picodollars or 0 for each in bill.breaks))
    return (
        f"{cost}: {more} of it because {len(bill.breaks):,} read {lost:,} tokens less than was cached before"
    )


def sentences(bill: Bill) -> list[str]:
    """Return how far the prediction is from the log, and what the dollars include."""
    read = sum(line.measured.read for line in bill.lines)
    predicted = sum(line.predicted.read for line in bill.lines)
    reads = f"exact in {bill.exact:,} of {bill.later:,} later calls, {_apart(predicted, read)} in sum"
    bills = bill.predicted_picodollars, bill.picodollars
    found = [f"predicted reads: {reads}; dollars {dollars(bills[0])}, {_apart(*bills)}"]
    if elsewhere := _warm_before(bill):
        found.append(f"first calls read {elsewhere:,} tokens that no call of these logs had written")
    if not bill.has_output:
        found.append("dollars are those of the input: the log does not count every answer")
    missing = [line.model for line in bill.lines if line.picodollars is None]
    if missing:
        found.append(f"without a known price, left out of the dollars: {', '.join(missing)} (--price FILE)")
    doubts = Counter(each.doubt for each in bill.predicted if each.doubt)
    for doubt, count in doubts.items():
        found.append(f"not decided by any rule: {count:,} call{'s' * (count != 1)}, {doubt}")
    return found


def _warm_before(bill: Bill) -> int:
    """Return the tokens that first calls read beyond what earlier calls of any session had written."""
    pairs = zip(bill.calls, bill.predicted, strict=True)
    return sum(max(0, measured(call).read - each.read) for call, each in pairs if each.cause == "first")


def _apart(found: int, logged: int) -> str:
    return f"{(found - logged) / logged:+.2%}" if logged else "none measured"


def causes_table(bill: Bill) -> Table:
    """Return the causes of breaks, the dearest first, with the provider's labels."""
    rows = (
        (
            each.cause,
            f"{each.calls:,}",
            f"{each.lost_tokens:,}",
            dollars(each.picodollars),
            each.labels or None,
        )
        for each in causes_of(bill)
    )
    return Table(("why calls read less", "calls", "tokens lost", "dollars", "provider's label"), tuple(rows))


def costliest_table(bill: Bill, most: int) -> Table:
    """Return the breaks that cost most."""
    rows = (
        (
            clock(each.call.start_ns),
            each.predicted.cause,
            each.predicted.differs or None,
            f"{each.predicted.lost_tokens:,}",
            dollars(each.picodollars),
        )
        for each in costliest(bill, most)
    )
    return Table(("UTC", "cause", "differs first", "tokens lost", "dollars"), tuple(rows))


def what_if_table(what_if: Sequence[WhatIf]) -> Table:
    """Return the bills of edited sessions after the prediction without an edit."""
    base = what_if[0].base_picodollars
    rows: list[tuple[str | None, ...]] = [("as it is (predicted)", dollars(base), None)]
    for each in what_if:
        cost = each.picodollars
        change = None if cost is None or not base else f"{(cost - base) / base:+.1%}"
        rows.append((each.edit.flag, dollars(cost), change))
    return Table(("what if", "dollars", "change"), tuple(rows))


def given(what_if: Sequence[WhatIf]) -> list[str]:
    """Return why edits have no bill, and what is taken as given: once for all edits that share it."""
    by_text: dict[str, list[str]] = {}
    for each in what_if:
        for text in each.given:
            by_text.setdefault(text, []).append(each.edit.flag)
    bills = sum(not each.refused for each in what_if)
    shared = [
        text if len(flags) == bills else f"{', '.join(flags)}: {text}" for text, flags in by_text.items()
    ]
    said = [each.refused for each in what_if if each.refused]
    return [*said, *(f"taken as given: {text}" for text in shared)]


def dollars(picodollars: int | None) -> str:
    """Return an amount with at least four digits; "–" for an unknown one."""
    if picodollars is None:
        return "–"
    amount = picodollars / PICODOLLARS
    return f"${amount:,.2f}" if abs(amount) >= 100 else f"${amount:.4f}"


def clock(ns: int) -> str:
    """Return a time of a log in UTC."""
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
