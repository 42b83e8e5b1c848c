"""The cause of a call that read less than the call before left: by the rules, else by its own counts."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.extras.session.calls import Call, Counts

#: Starts of two calls within which the second often misses what the first wrote; times from start to start at
#: which logs show both lapses and reads.
_JUST_WRITTEN_NS = 5 * NS_PER_S
_EDGE_NS = (300 * NS_PER_S, 310 * NS_PER_S)
_LOOK_BACK_BLOCKS = 20
_BEFORE_MESSAGES = ("model", "tools", "system")
#: The doubt of a cause that no line and no label names: all others are excluded.
EXCLUDED = "named by exclusion"
#: Causes by the provider's label, where the log shows none.
_OF_LABEL = {
    "model_changed": "model",
    "tools_changed": "tools",
    "system_changed": "system",
    "messages_changed": "edit",
    "unavailable": "parameters",
}


class Evidence(NamedTuple):
    """The signs in a log of a call that continues another, before its own counts.

    Attributes:
        call: The call.
        before: The call that it continues.
        expected: Tokens that it reads if nothing broke.
        change: Cause of a prompt that does not begin with the one before; "" if it does.
        differs: The first block that differs.
        why: Why the cache does not have it: ``ttl``, ``look-back``, ``concurrent``, ``below minimum``, "".
        is_user_turn: It adds a message of the user to a prompt with thinking that its model removes then.
        head_tokens: Tokens of tools and system, 0: not known.
        has_routing: The provider's machines may differ by request.
        earlier: Tokens that each of the last calls before ``before`` left.
    """

    call: Call
    before: Call
    expected: int
    change: str
    differs: str
    why: str
    is_user_turn: bool
    head_tokens: int
    has_routing: bool
    earlier: tuple[int, ...]

    @property
    def named(self) -> str:
        """The cause by the provider's label; "" without one that names any."""
        return "" if self.call.label is None else _OF_LABEL.get(self.call.label.kind, "")

    @property
    def gap_ns(self) -> int:
        """The time from start to start."""
        return self.call.start_ns - self.before.start_ns

    @property
    def doubt(self) -> str:
        """The reason why no rule decides for certain; "" if one does."""
        return "300 to 310 s" if _EDGE_NS[0] < self.gap_ns <= _EDGE_NS[1] else ""


class Cause(NamedTuple):
    """A cause as ``calls.Predicted`` has it."""

    cause: str
    differs: str = ""
    lost_tokens: int = 0
    doubt: str = ""
    is_by_label: bool = False


def cause_of(evidence: Evidence | None, read: int, counts: Counts | None) -> Cause:
    """Return the cause of a call.

    Args:
        evidence: None for the first call of a conversation.
        read: The predicted read.
        counts: The call's own counts; None if the log has none.
    """
    if evidence is None:
        return Cause("first")
    measured = read if counts is None else counts.read
    lost = evidence.expected - measured
    if lost <= 0 and (evidence.why != "below minimum" or measured):
        return Cause("continue", doubt=evidence.doubt)
    label, change = evidence.named, evidence.change
    if measured < read and label in _BEFORE_MESSAGES and label != change:
        return Cause(label, "", lost, is_by_label=True)
    why = evidence.why if read < evidence.expected or evidence.why == "below minimum" else ""
    found = why if why == "ttl" else change or why
    if found:
        return Cause(found, evidence.differs if found == change else "", lost, evidence.doubt)
    return _seen(evidence, measured, lost)


def _seen(evidence: Evidence, measured: int, lost: int) -> Cause:
    """Return the cause of a break that only the counts show."""
    label, is_user_turn = evidence.named, evidence.is_user_turn
    if evidence.call.history.event == "edit":
        return Cause("edit", "messages", lost)
    if label == "edit" and is_user_turn:
        return Cause("user turn", "messages", lost)
    if label:
        return Cause(label, "", lost, is_by_label=True)
    is_equal = evidence.call.label is not None and evidence.call.label.kind == ""
    if evidence.has_routing:
        return Cause("unknown", "", lost, "routing or eviction")
    is_earlier = measured in evidence.earlier
    is_missed = evidence.gap_ns <= _JUST_WRITTEN_NS and (is_earlier or not measured)
    is_missed |= evidence.gap_ns <= 2 * _JUST_WRITTEN_NS and (is_earlier or is_equal)
    if (is_missed or (is_earlier and is_equal)) and not is_user_turn:
        return Cause("concurrent", "", lost, "just written")
    if len(evidence.before.answer) + len(evidence.call.added) >= _LOOK_BACK_BLOCKS:
        return Cause("look-back", "", lost, "at the reach of breakpoints")
    if is_equal:
        return Cause("ttl", "", lost, EXCLUDED)
    if is_user_turn and measured:
        return Cause("user turn", "messages", lost, EXCLUDED)
    if measured == 0:
        return Cause("tools", "tools or system", lost, EXCLUDED)
    if measured < evidence.head_tokens:
        return Cause("system", "system", lost, EXCLUDED)
    return Cause("edit", "messages", lost, EXCLUDED)
