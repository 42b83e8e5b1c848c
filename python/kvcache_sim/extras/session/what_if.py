"""The bill of the same sessions with one thing changed: lifetimes, tools, system, history, provider, prices.

Times, answers and results of tools stay as logged. Both bills are predictions, so that a difference is the
edit's alone; breaks that only the counts show happen in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.extras.session.bill import Prices, counts_of, counts_output, sum_of, total_of
from kvcache_sim.extras.session.calls import Call, Counts, Predicted, Segment
from kvcache_sim.extras.session.known import Known
from kvcache_sim.extras.session.predict import Settings, in_order, is_user_turn, predict
from kvcache_sim.extras.session.sized import (
    SizedCall,
    as_calls,
    owners_of,
    riders,
    sized_calls,
    without_compactions,
)
from kvcache_sim.model.prices import PICODOLLARS, TTL_NS, PriceTable, price_table, why_unpriced
from kvcache_sim.workload.context_edits import ContextEdit, EditedContext, parse_compact_at, size_tokens

#: The context window that a percentage is of.
WINDOW_TOKENS = 200_000
_CONTEXT = ContextEdit()
#: Edits of what a prompt has.
CONTEXT_EDITS = ("compact-at", "drop-results-older")
#: Edits that ``best`` tries.
_SENSIBLE = (
    ("ttl", "5m"),
    ("ttl", "1h"),
    ("mark", "second-last"),
    ("sort-tools", ""),
    ("freeze", "system"),
    ("compact-at", "50%"),
    ("compact-at", "80%"),
    ("drop-results-older", "5"),
)


class NotInLogs(UsageError):
    """An edit that is one, but that these logs have nothing to try on; the others still run."""


class Edit(Value):
    """One what-if: the name of its flag without dashes, and its value ("" for none)."""

    name: str
    value: str = ""

    @property
    def flag(self) -> str:
        """The flag as written."""
        return f"--{self.name} {self.value}".rstrip()


class WhatIf(Value):
    """The bill under an edit.

    ``counts`` are the sums, ``picodollars`` the bill, ``base_picodollars`` the prediction without the edit;
    None: a model's price is not known. ``given`` says what is taken as given, ``refused`` why there is no
    bill.
    """

    edit: Edit
    counts: Counts = Counts(0, 0)
    picodollars: int | None = None
    base_picodollars: int | None = None
    given: tuple[str, ...] = ()
    refused: str = ""

    @property
    def difference(self) -> float | None:
        """Dollars more than without the edit; less than 0: it saves."""
        if self.picodollars is None or self.base_picodollars is None:
            return None
        return (self.picodollars - self.base_picodollars) / PICODOLLARS


class Sums(Value):
    """Sums of a replay and their price; ``has_output``: answers are part of it."""

    counts: Counts
    picodollars: int | None
    has_output: bool


class Sessions:
    """The calls of logs, replayed once with their counts; each what-if is a replay of edited ones.

    ``context`` has the sizes of compactions where the logs have none, and of placeholders of dropped results.
    """

    def __init__(self, calls: Sequence[Call], table: PriceTable, context: ContextEdit = _CONTEXT) -> None:
        self.table, self.context, self._known = table, context, Known()
        ordered = in_order(calls)
        seen = predict(ordered, table, known=self._known)
        warm = {
            each.id: call.counts.read
            for call, each in zip(ordered, seen, strict=True)
            if call.counts is not None and each.cause == "first" and call.counts.read > each.read
        }
        self._warm = Settings(is_blind=True, warm=warm)
        self.has_hidden = bool(_hidden(ordered, seen))
        edited = {
            each.id: call.counts.read
            for call, each in _hidden(ordered, seen)
            if each.cause == "edit" and call.counts
        }
        self.sized = sized_calls(_as_seen(ordered, seen), self._known, edited)
        self._has_output = counts_output(calls)
        self.base = self._bill(self.sized, self._warm, table)

    def tokens(self, model: str, blocks: Sequence[Segment]) -> int:
        """Return the tokens of blocks by their bytes."""
        return self._known.tokens(model, blocks)

    def lifetimes(self) -> list[str]:
        """Return the lifetimes that every model has; those of any, if no table names a model."""
        rows = [self.table.row(each.call.model, each.call.start_ns) for each in self.sized]
        lists = [list(row[1].write) for row in rows if row is not None]
        return [ttl for ttl in (lists[0] if lists else TTL_NS) if all(ttl in each for each in lists)]

    def what_if(self, edit: Edit) -> WhatIf:
        """Return the bill under an edit; ``refused`` where the logs have not what it needs.

        Raises:
            UsageError: No such edit, or a value that is none of it.
        """
        if edit.name not in _EDITS:
            expected = ", ".join(f"--{name}" for name in _EDITS)
            raise UsageError("no such what-if", where="--what-if", got=edit.flag, expected=expected)
        try:
            edited = _EDITS[edit.name](self, edit.value)
        except NotInLogs as error:
            return WhatIf(edit, refused=f"{edit.flag}: {error}", base_picodollars=self.base.picodollars)
        bill = self._bill(edited.calls, edited.settings, edited.table)
        given = ("times, answers and results of tools as logged", *edited.given)
        given += () if self._has_output else ("the input side alone: the log does not count whole answers",)
        return WhatIf(edit, bill.counts, bill.picodollars, self.base.picodollars, given)

    def best(self, most: int = 3) -> list[WhatIf]:
        """Return the cheapest of the sensible edits that save anything, the cheapest first."""
        tried = [self.what_if(Edit(*each)) for each in _SENSIBLE]
        saving = [each for each in tried if each.difference is not None and each.difference < 0]
        return sorted(saving, key=lambda each: each.picodollars or 0)[:most]

    def edited(self, calls: list[SizedCall] | None = None, **changes: object) -> Edited:
        """Return an edit of these sessions: other calls, or settings of the replay."""
        settings = msgspec.structs.replace(self._warm, **changes)
        return Edited(self.sized if calls is None else calls, settings, self.table)

    def _bill(self, sized: Sequence[SizedCall], settings: Settings, table: PriceTable) -> Sums:
        calls = in_order(as_calls(sized))
        found = predict(calls, table, settings, self._known)
        prices = Prices(table, self._has_output)
        counts = [counts_of(each) for each in found]
        costs = [prices.of(call, each) for call, each in zip(calls, counts, strict=True)]
        return Sums(sum_of(counts), total_of(costs), self._has_output)


class Edited(Value):
    """Sessions under an edit: calls, settings of the replay, prices, and what is assumed."""

    calls: list[SizedCall]
    settings: Settings
    table: PriceTable
    given: tuple[str, ...] = ()


def _hidden(calls: Sequence[Call], seen: Sequence[Predicted]) -> list[tuple[Call, Predicted]]:
    """Return the calls of breaks that only their counts show."""
    pairs = zip(calls, seen, strict=True)
    return [
        (call, each) for call, each in pairs if each.is_break and call.counts and call.counts.read < each.read
    ]


def _as_seen(calls: Sequence[Call], seen: Sequence[Predicted]) -> list[Call]:
    """Return calls whose history has the breaks, and the kept thinking, that only their counts show.

    Such a break is another parameter from then on: one of the system's where all was lost.
    """
    found, changes, chains = [], dict[str, dict[str, str]](), dict[str, str]()
    hidden = {call.id for call, each in _hidden(calls, seen) if each.cause not in ("edit", "user turn")}
    for call, each in zip(calls, seen, strict=True):
        history, chain = call.history, call.conversation.chain
        broken = changes.setdefault(chain, {**changes.get(chains.get(history.before, ""), {})})
        chains[call.id] = chain
        if call.counts is not None and not history.event and is_user_turn(call):
            history = msgspec.structs.replace(
                history, event="thinking stripped" if each.cause == "user turn" else "thinking kept"
            )
        if call.counts is not None and call.id in hidden:
            broken["thinking" if call.counts.read else "speed"] = call.id
        found.append(msgspec.structs.replace(call, history=history, parameters={**call.parameters, **broken}))
    return found


def _ttl(sessions: Sessions, value: str) -> Edited:
    lifetimes = sessions.lifetimes()
    if not lifetimes:
        raise NotInLogs("these models' provider has no lifetimes to choose", got=value)
    if value not in lifetimes:
        raise UsageError("not a lifetime", where="--ttl", got=repr(value), expected=", ".join(lifetimes))
    return sessions.edited(ttl=value)


def _mark(sessions: Sessions, value: str) -> Edited:
    if value != "second-last":
        raise UsageError("not a breakpoint", where="--mark", got=repr(value), expected="second-last")
    if not sessions.lifetimes():
        raise NotInLogs("these models' provider has no breakpoints", got=value)
    return sessions.edited(marks_before=True)


def _sorted_tools(sessions: Sessions, value: str) -> Edited:
    def ordered(prompt: list[Segment]) -> list[Segment]:
        tools = [each for each in prompt if each.kind == "tools"]
        return [
            *sorted(tools, key=lambda tool: tool.name),
            *(each for each in prompt if each.kind != "tools"),
        ]

    return _with_prompts(sessions, "tools", ordered)


def _frozen(sessions: Sessions, value: str) -> Edited:
    if value != "system":
        raise UsageError("not a part of prompts", where="--freeze", got=repr(value), expected="system")
    first: dict[str, list[Segment]] = {}
    owners = owners_of(sessions.sized)
    chains = {id(each.prompt): owners[each.call.conversation.chain] for each in sessions.sized}

    def frozen(prompt: list[Segment]) -> list[Segment]:
        system = [each for each in prompt if each.kind == "system"]
        kept = first.setdefault(chains[id(prompt)], system)
        tools = [each for each in prompt if each.kind == "tools"]
        return [*tools, *kept, *(each for each in prompt if each.kind not in ("tools", "system"))]

    return _with_prompts(sessions, "system", frozen)


def _with_prompts(sessions: Sessions, kind: str, edit: Callable[[list[Segment]], list[Segment]]) -> Edited:
    """Return the sessions with prompts edited; NotInLogs if none has the texts of this kind."""
    if not any(part.kind == kind and part.size_bytes for each in sessions.sized for part in each.prompt):
        what = f"the logs have no texts of {kind} (Claude Code before 2.1.267)"
        raise NotInLogs(what, hint="a log of a newer release has them")
    calls = [msgspec.structs.replace(each, prompt=edit(each.prompt)) for each in sessions.sized]
    return sessions.edited(calls)


def _compacted(sessions: Sessions, value: str) -> Edited:
    edit = context_of(Edit("compact-at", value), _of_log(sessions))
    limit = edit.compact_at_tokens
    said = f"an instruction of {edit.instruction_tokens:,} and a summary of {edit.summary_tokens:,} tokens"
    whole = without_compactions(sessions.sized, edit.instruction_tokens)
    calls = _contexts(whole, edit)
    if len(calls) == len(whole) == len(sessions.sized):
        raise NotInLogs(f"no prompt has more than {limit:,} tokens", got=value)
    given = [said, *([f"a context window of {WINDOW_TOKENS:,} tokens"] if "%" in value else [])]
    given += ["edits of messages that a summary replaces do not happen"] if sessions.has_hidden else []
    return msgspec.structs.replace(sessions.edited(calls), given=tuple(given))


def _dropped(sessions: Sessions, value: str) -> Edited:
    edit = context_of(Edit("drop-results-older", value), sessions.context)
    if not any(part.kind == "tool_result" for each in sessions.sized for part in each.prompt):
        raise NotInLogs("the logs have no results of tools")
    said = f"a placeholder of {edit.placeholder_tokens} tokens for each dropped result"
    return msgspec.structs.replace(sessions.edited(_contexts(sessions.sized, edit)), given=(said,))


def context_of(edit: Edit, sizes: ContextEdit) -> ContextEdit:
    """Return an edit of contexts (``CONTEXT_EDITS``) with the lengths of what it adds; raises UsageError."""
    if edit.name == "compact-at":
        limit = parse_compact_at(edit.value, WINDOW_TOKENS)
        return msgspec.structs.replace(sizes, compact_at_tokens=limit)
    if not edit.value.isdecimal():
        raise UsageError(
            "not a number of results",
            where="--drop-results-older",
            got=repr(edit.value),
            expected="such as 5",
        )
    return msgspec.structs.replace(sizes, kept_results=int(edit.value))


def _of_log(sessions: Sessions) -> ContextEdit:
    """Return the sizes of the log's own compaction: of its last block, the instruction, and of its answer."""
    own_calls = riders(sessions.sized)
    if not own_calls:
        return sessions.context
    call = own_calls[0].call
    asked = sessions.tokens(call.model, call.added[-1:])
    summary = (call.counts and call.counts.output) or size_tokens(own_calls[0].answer)
    sizes = {"instruction_tokens": asked, "summary_tokens": summary}
    return msgspec.structs.replace(sessions.context, **sizes)


def _contexts(sized: Sequence[SizedCall], edit: ContextEdit) -> list[SizedCall]:
    """Return the calls of edited contexts, those of compactions among them."""
    contexts: dict[str, EditedContext[Segment]] = {}
    found = []
    for each in sized:
        call, chain = each.call, each.call.conversation.chain
        context = contexts.setdefault(chain, EditedContext(edit, _made(chain)))
        *asked, prompt = context.prompts(each.prompt, each.kept, each.answer)
        for summary in asked:
            name = f"{call.id} compaction"
            counts = Counts(0, 0, output=edit.summary_tokens)
            extra = msgspec.structs.replace(call, id=name, first_ns=call.start_ns, counts=counts, answer=())
            found.append(SizedCall(extra, summary, [], 0))
        found.append(msgspec.structs.replace(each, prompt=prompt))
    return found


def _made(chain: str) -> Callable[[str, str, int], Segment]:
    def made(kind: str, name: str, tokens: int) -> Segment:
        return Segment(kind, name if name == "dropped" else f"{chain} {name}", tokens=tokens)

    return made


def _provider(sessions: Sessions, value: str) -> Edited:
    provider, _, model = value.partition(":")
    row = sessions.table.row(model, sessions.sized[0].call.start_ns)
    if row is None or row[0].provider != provider:
        hint = why_unpriced(provider) or "--price FILE adds a table"
        raise UsageError("no prices of this model", where="--provider", got=repr(value), hint=hint)
    calls = [
        msgspec.structs.replace(
            each,
            call=msgspec.structs.replace(
                each.call,
                model=model,
                conversation=msgspec.structs.replace(each.call.conversation, provider=provider),
            ),
        )
        for each in sessions.sized
    ]
    said = ("tokens as the log's provider counts them", *row[0].unconfirmed, *row[1].unconfirmed)
    if sessions.has_hidden:
        said = ("edits that no line shows begin where their call stopped reading", *said)
    return msgspec.structs.replace(sessions.edited(calls, warm={}), given=said)


def _priced(sessions: Sessions, value: str) -> Edited:
    return msgspec.structs.replace(sessions.edited(), table=price_table([Path(value)]))


_EDITS: dict[str, Callable[[Sessions, str], Edited]] = {
    "ttl": _ttl,
    "sort-tools": _sorted_tools,
    "freeze": _frozen,
    "compact-at": _compacted,
    "drop-results-older": _dropped,
    "mark": _mark,
    "provider": _provider,
    "price": _priced,
}
#: The names of the flags.
EDITS = tuple(_EDITS)
