"""The gate of pull requests: the bill of sessions against that of the main branch, and what differs first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value
from kvcache_sim.extras.session.bill import Bill
from kvcache_sim.extras.session.bodies import Block, Body
from kvcache_sim.extras.session.calls import Call, Conversation, History, Mark
from kvcache_sim.extras.session.screen import dollars

DAYS_A_MONTH = 30
#: Bodies have no clock: the day of their prices, and the time between two requests.
_START_NS = 1_790_000_000 * NS_PER_S
_GAP_NS = 20 * NS_PER_S
_ORDER = {"tools": 0, "system": 1}
_A_MONTH = {"day": Fraction(DAYS_A_MONTH), "week": Fraction(DAYS_A_MONTH, 7), "month": Fraction(1)}


class Difference(Value):
    """The cost of a session on both sides; ``first`` differs first, in ``call``; "" for nothing.

    ``breaks_picodollars`` is the cost of its breaks less that of main's: tokens that could have been read.
    ``lost_tokens`` are the tokens a session that are no longer read from the cache.
    """

    main_picodollars: Fraction
    new_picodollars: Fraction
    breaks_picodollars: Fraction
    lost_tokens: Fraction
    first: str
    call: str

    @property
    def rise(self) -> Fraction:
        """The rise of a session's cost, or of that of its breaks if it is larger, as a share of main's cost.

        A shorter prompt may hide a broken prefix in the cost of a session.
        """
        more = max(self.new_picodollars - self.main_picodollars, self.breaks_picodollars)
        return more / self.main_picodollars if self.main_picodollars else Fraction(0)


def parse_fail_if(text: str) -> Fraction:
    """Return the change at which the gate fails, such as ``+2%``; raises UsageError."""
    found = re.fullmatch(r"\+?(\d{1,6}(?:\.\d{1,6})?)\s*%", text.strip())
    if found is None:
        raise UsageError("not a rise of the bill", where="--fail-if", got=repr(text), expected="such as +2%")
    return Fraction(found[1]) / 100


def parse_volume(text: str) -> Fraction:
    """Return sessions a month of 30 days of a volume such as ``2000 sessions/day``; raises UsageError."""
    found = re.fullmatch(r"(\d[\d_,]{0,14})\s*sessions?\s*/\s*(day|week|month)", text.strip())
    if found is None or not int(re.sub("[_,]", "", found[1])):
        expected = "such as '2000 sessions/day' (or /week, /month)"
        raise UsageError("not a volume", where="--volume", got=repr(text), expected=expected)
    return int(re.sub("[_,]", "", found[1])) * _A_MONTH[found[2]]


def calls_of(sessions: Mapping[str, Sequence[Body]], main: Mapping[str, Sequence[Body]]) -> list[Call]:
    """Return the calls of bodies, each session after one that left what main's first body has of its history.

    What a session's first body has before its last message was there before the session, so a cache that main
    keeps warm has it.
    """
    calls: list[Call] = []
    at_ns = _START_NS
    for name, bodies in sessions.items():
        first = main.get(name, next(iter(main.values())))[0]
        before = ""
        if first.history:
            blocks = first.blocks[: first.history]
            marks = tuple(mark for mark in first.marks if mark.block < len(blocks))
            marks = (*marks, Mark(len(blocks) - 1)) if first.marks else ()
            earlier = first._replace(blocks=blocks, marks=marks, history=0)
            calls.append(_call(earlier, f"{name} before", at_ns, ""))
            at_ns += _GAP_NS
        for body in bodies:
            calls.append(_call(body, name, at_ns, before))
            before, at_ns = calls[-1].id, at_ns + _GAP_NS
    return calls


def is_earlier(call: Call) -> bool:
    """Return True for a call that only warms the cache: it is in no bill."""
    return call.conversation.session.endswith(" before")


def _call(body: Body, session: str, at_ns: int, before: str) -> Call:
    segments = tuple(block.segment for block in body.blocks)
    provider = "anthropic" if "claude" in body.model else "openai"
    return Call(
        f"{session}: {body.file}",
        at_ns,
        at_ns + NS_PER_S,
        body.model,
        Conversation(provider, "", session, session),
        None,
        History(before, 0 if before else None),
        segments,
        parameters=body.parameters,
        marks=body.marks,
    )


def difference(new: Bill, main: Bill, first: str = "", call: str = "") -> Difference:
    """Return the difference of two predicted bills, by session; ``first`` differs first, in ``call``."""
    sides = []
    for bill in (new, main):
        for line in bill.lines:
            if line.predicted_picodollars is None:
                raise UsageError(
                    "no known price", where="--against", got=line.model, hint="--price FILE has it"
                )
        sessions = len({each.conversation.session for each in bill.calls})
        paid = sum(line.predicted.uncached + line.predicted.written for line in bill.lines)
        breaks = sum(each.picodollars or 0 for each in bill.breaks)
        sides.append([Fraction(each, sessions) for each in (bill.predicted_picodollars, breaks, paid)])
    (new_cost, new_breaks, new_paid), (main_cost, main_breaks, main_paid) = sides
    return Difference(main_cost, new_cost, new_breaks - main_breaks, new_paid - main_paid, first, call)


def first_difference(new: Sequence[Body], main: Sequence[Body]) -> tuple[str, str]:
    """Return (address, file) of the first block that ends a common prefix; "" for both without any.

    A body is compared with the one before it in its session, which its prompt continues, then with main's.
    """
    for number, body in enumerate(new):
        earlier = [new[number - 1]] if number else []
        for other in [*earlier, *main[number : number + 1]]:
            is_before = other is not main[number] if number < len(main) else True
            found = _differs(other, body, is_before)
            if found:
                return found, body.file
    return "", ""


def _differs(old: Body, new: Body, is_before: bool) -> str:
    """Return what ends the common prefix of two prompts; "" if the newer one continues the older one."""
    if old.model != new.model:
        return "model"
    end = len(old.blocks) if is_before else min(old.history, len(old.blocks))
    for at in range(end):
        was = old.blocks[at]
        now = new.blocks[at] if at < len(new.blocks) else None
        if now is None or (was.segment.kind, was.segment.name) != (now.segment.kind, now.segment.name):
            return _address(was, now, old.blocks[at:])
    changed = [
        name
        for name in {**old.parameters, **new.parameters}
        if old.parameters.get(name) != new.parameters.get(name)
    ]
    if changed:
        return changed[0]
    if not is_before:
        marked = {mark.block for mark in new.marks}
        gone = [mark.block for mark in old.marks if mark.block < end and mark.block not in marked]
        if gone or bool(old.marks) > bool(new.marks):
            return f"{old.blocks[gone[0] if gone else -1].address}: cache_control"
    return ""


def _address(was: Block, now: Block | None, rest: Sequence[Block]) -> str:
    """Return the address of a difference: the older block's if the newer prompt has a later one there."""
    if now is None:
        return f"{was.address}: gone"
    later = {(block.segment.kind, block.segment.name) for block in rest[1:]}
    is_gone = (now.segment.kind, now.segment.name) in later and was.address.split("[")[
        0
    ] != now.address.split("[")[0]
    return f"{was.address}: gone" if is_gone else now.address


def verdict_lines(found: Difference, limit: Fraction, sessions_a_month: Fraction | None) -> list[str]:
    """Return the verdict as sentences."""
    rise = f"{float(found.rise):+.1%} (limit {float(limit):+.1%})"
    cost, main = (dollars(round(each)) for each in (found.new_picodollars, found.main_picodollars))
    said = [f"a session costs {cost}, main's {main}: {rise}"]
    if found.breaks_picodollars > 0:
        said.append(f"its broken prefixes cost {dollars(round(found.breaks_picodollars))} more than main's")
    if found.rise > limit and found.first:
        said.append(f"first difference: {found.first} in {found.call}")
    if found.lost_tokens > 0:
        said.append(f"{round(found.lost_tokens):,} tokens a session are no longer read from the cache")
    if sessions_a_month is not None:
        month = round(found.rise * found.main_picodollars * sessions_a_month)
        tokens = round(max(found.lost_tokens, Fraction(0)) * sessions_a_month)
        many = f"a month of {round(sessions_a_month):,} sessions"
        said.append(f"{many}: {dollars(month)} more, {tokens:,} tokens no longer read")
    return said
