"""Predictions of what a provider's cache does with each call of a log.

A call is predicted from the log up to its request, its prompt's total and the counts of calls before it. Then
its own counts correct what is known: the tokens at the ends of prompts, of tools and system, the lifetime
that the client asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcache_sim._core import HostedCache
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value
from kvcache_sim.base.values import field as value_field
from kvcache_sim.extras.session.calls import Call, Counts, Predicted, Segment
from kvcache_sim.extras.session.causes import Evidence, cause_of
from kvcache_sim.extras.session.heads import Head
from kvcache_sim.extras.session.known import Asked, Ended, Known
from kvcache_sim.extras.session.prompts import HEAD, Prompts, first_difference, is_unknown, scope_of
from kvcache_sim.model.prices import TTL_NS, ModelPrice, PriceTable, Provider

_FOREVER_NS = 1 << 63
_NS_A_DAY = 86_400 * NS_PER_S
#: Calls whose entries a call may read that came too soon after the last.
_EARLIER = 4
#: Causes that change the content of a prompt.
_CHANGES = ("tools", "system", "parameters", "edit", "user turn")
#: Providers that have rules of their own for a model that no table names; others have Anthropic's.
_PROVIDERS = ("anthropic", "openai", "deepseek")


class Settings(Value):
    """Settings of a replay.

    ``counts_own_block``: a breakpoint's block is one of those that it looks back. ``ttl``: all writes at this
    lifetime instead of the log's. ``marks_before``: one more breakpoint, where the prompt before ended.
    ``is_blind``: counts give the totals alone, and nothing is learned from them. ``warm``: tokens that other
    sessions have left for a call, by its id.
    """

    counts_own_block: bool = False
    ttl: str = ""
    marks_before: bool = False
    is_blind: bool = False
    warm: Mapping[str, int] = value_field(default_factory=dict)


DEFAULT = Settings()


def in_order(calls: Sequence[Call]) -> list[Call]:
    """Return calls in order of their start."""
    return sorted(calls, key=lambda call: call.start_ns)


def predict(
    calls: Sequence[Call], table: PriceTable, settings: Settings = DEFAULT, known: Known | None = None
) -> list[Predicted]:
    """Return the prediction of each call, in order of their start.

    Args:
        calls: Calls of any sessions; those of one provider, workspace and model share a cache.
        table: Rules of providers by model.
        settings: Settings of the replay.
        known: What counts have shown before; it is corrected.
    """
    replay = Replay(table, settings, Known() if known is None else known)
    return [replay.call(call) for call in in_order(calls)]


class Replay:
    """Calls one after another, in order of their start, against their providers' caches."""

    def __init__(self, table: PriceTable, settings: Settings, known: Known) -> None:
        self._table, self._settings, self._known = table, settings, known
        self._caches: dict[str, Prompts] = {}
        self._ended: dict[str, Ended] = {}
        self._rules: dict[tuple[str, str, int], tuple[Provider, ModelPrice | None]] = {}
        #: By head, the first prompt that began with it and found nothing.
        self._openings: dict[str, Asked] = {}
        #: By head that no line of a log shows, the tokens of the one before.
        self._guessed: dict[str, int] = {}

    def call(self, call: Call) -> Predicted:
        """Replay a call: return what is predicted of it, then put its counts and writes into the cache."""
        asked = self._asked(call)
        marks = self._marks(asked)
        found, why = asked.found(marks)
        read = min(asked.total, 0 if found is None else self._size(asked, found))
        evidence = None if asked.before is None else self._evidence(asked, asked.before, why)
        if evidence is not None and evidence.why == "ttl" and found is None:
            read = min(self._known.lapsed.get(asked.head, 0), evidence.expected)
        read = max(read, min(self._settings.warm.get(call.id, 0), asked.total))
        read = asked.rules.stepped(read) if asked.rules.step_tokens else read
        counts = None if self._settings.is_blind else split(call.counts) if asked.has_marks else call.counts
        cause = cause_of(evidence, read, counts)
        tail = min(asked.total - read, self._known.tails.get(call.conversation.chain, 0))
        written = asked.total - read - tail if asked.has_marks and asked.total >= asked.minimum else 0
        ttl = self._ttl(asked)
        predicted = Predicted(
            call.id,
            read,
            asked.total - read - written,
            written if ttl == "5m" else 0,
            written if ttl == "1h" else 0,
            *cause,
            0 if ttl in ("5m", "1h") else written,
        )
        if counts is not None:
            prompt, asked = asked.prompt, self._learned(asked, evidence, counts, found)
            if evidence is not None and cause.cause in _CHANGES and cause.cause != evidence.change:
                asked = self._changed(asked, counts.read, cause.cause)
            if asked.prompt is not prompt:
                marks = self._marks(asked)
                found, _ = asked.found(marks)
        if evidence is None:
            for head in asked.prompt.heads:
                self._openings.setdefault(asked.prompts.name(head), asked)
        if found is not None:
            asked.prompts.cache.refresh(found, call.start_ns)
        carried = asked.total - tail if counts is None else counts.read + counts.written
        self._write(asked, marks, carried)
        return predicted

    def _asked(self, call: Call) -> Asked:
        key, chain = (
            (call.conversation.provider, call.model, call.start_ns // _NS_A_DAY),
            call.conversation.chain,
        )
        if key not in self._rules:
            self._rules[key] = rules_of(self._table, call)
        rules, price = self._rules[key]
        if rules.policy not in self._caches:
            self._caches[rules.policy] = Prompts(_cache(rules, self._settings), self._known.shared.of_chain)
        prompts, before = self._caches[rules.policy], self._ended.get(call.history.before)
        if before is None and is_unknown(call.added[:1]) and chain not in self._known.shared.of_chain:
            messages = self._known.tokens(call.model, call.added[1:])
            total = messages if call.counts is None else call.counts.prompt
            self._known.shared.choose(call, self._shared(prompts, call), total, messages)
        is_stripped = before is not None and self._strips(call, before, price)
        prompt = prompts.made(call, None if before is None else (before.call, before.prompt), is_stripped)
        if call.counts is not None:
            total = call.counts.prompt
        else:
            total = self._known.tokens(call.model, prompts.segments(prompt.tail))
        if before is not None and before.prompt.scope != prompt.scope:
            size = self._head_tokens(prompts.name(before.prompt.head))
            self._guessed.setdefault(prompts.name(prompt.head), size or 0)
        return Asked(call, rules, price, prompts, prompt, total, before, is_stripped)

    def _shared(self, prompts: Prompts, call: Call) -> list[Head]:
        """Return the tools and system that a call may share, where the log does not have them."""
        scope, found = scope_of(call), []
        for each in self._known.shared.names(call.conversation):
            name = prompts.unknown_name(scope, each)
            kept = prompts.keeps(name, call.start_ns)
            found.append(Head(each, self._head_tokens(name), name in self._known.heads, kept))
        return found

    def _head_tokens(self, name: str) -> int | None:
        """Return the tokens of tools and system: as read, or by the first prompt with them, else None."""
        opening = self._openings.get(name)
        if not name or name in self._known.heads or opening is None:
            return self._known.heads.get(name, self._guessed.get(name))
        kinds = HEAD if opening.head == name else HEAD[:1]
        rest = [each for each in opening.call.added if each.kind not in kinds]
        return opening.total - self._known.tokens(opening.call.model, rest)

    def _strips(self, call: Call, before: Ended, price: ModelPrice | None) -> bool:
        """Return True if a user's message is taken to remove earlier thinking: by the rule, or as seen."""
        if call.history.event or not before.prompt.thinking:
            return call.history.event == "thinking stripped"
        if call.conversation.chain != before.call.conversation.chain or not is_user_turn(call):
            return False
        return self._turns(call, price) > 0

    def _turns(self, call: Call, price: ModelPrice | None) -> int:
        """Return how sure it is that a user's message removes thinking: by the rule, and as seen."""
        rule = price is not None and price.user_turn == "strips"
        return 2 * int(rule) + self._known.turns[scope_of(call)]

    def _marks(self, asked: Asked) -> list[tuple[int, str]]:
        marks = asked.prompts.marks(asked.prompt, asked.call)
        if self._settings.marks_before and asked.before is not None:
            marks.insert(-1, (asked.before.prompt.tail, ""))
        return marks

    def _ttl(self, asked: Asked) -> str:
        whose = asked.call.conversation
        named = (whose.chain, whose.session, scope_of(asked.call))
        known = (self._known.ttls[name] for name in named if name in self._known.ttls)
        return self._settings.ttl or next(known, asked.rules.default_ttl)

    def _size(self, asked: Asked, prefix: int) -> int:
        """Return the tokens of a prefix: as counts have shown, else by texts after the nearest known one."""
        prompts, rest = asked.prompts, list[Segment]()
        for at in reversed(prompts.cache.path(prefix)):
            size = prompts.sizes.get(at, self._head_tokens(prompts.name(at)))
            if size is not None:
                return size + self._known.tokens(asked.call.model, rest)
            rest += prompts.block(at)
        return self._known.tokens(asked.call.model, rest)

    def _evidence(self, asked: Asked, before: Ended, why: str) -> Evidence:
        """Return what the log says of a call that continues another."""
        call, expected = asked.call, min(before.carried, asked.total)
        change, differs = changed(asked.prompts, asked, before)
        lapse_ns = TTL_NS[self._ttl(asked)]
        if change:
            why = "ttl" if call.start_ns - before.call.start_ns > lapse_ns else ""
        elif not before.carried and before.total < asked.minimum:
            why, expected = "below minimum", before.total
        if asked.rules.step_tokens:
            expected = asked.rules.stepped(min(before.total, asked.total))
        head = self._known.heads.get(asked.prompts.name(asked.prompt.head), 0)
        turn = before.thought > 0 and any(each.kind == "user" for each in call.added)
        turn = turn and bool(self._turns(call, asked.price) > 0 or (asked.price and asked.price.user_turn))
        routed, earlier, at = asked.rules.policy == "openai", list[int](), before.call.history.before
        while at in self._ended and len(earlier) < _EARLIER:
            earlier.append(self._ended[at].carried)
            at = self._ended[at].call.history.before
        return Evidence(call, before.call, expected, change, differs, why, turn, head, routed, tuple(earlier))

    def _learned(self, asked: Asked, evidence: Evidence | None, counts: Counts, found: int | None) -> Asked:
        """Correct what is known by a call's counts; return the call, with the prompt that they show."""
        call, known, prompts = asked.call, self._known, asked.prompts
        whose, prompt = call.conversation, asked.prompt
        if counts.written:
            ttl = max((counts.write_5m, "5m"), (counts.write_1h, "1h"), (counts.write_30m, "30m"))[1]
            known.ttls |= dict.fromkeys((whose.chain, whose.session, scope_of(call)), ttl)
            known.tails[whose.chain] = min(known.tails.get(whose.chain, counts.uncached), counts.uncached)
        if evidence is None or asked.before is None:
            if whose.chain in known.shared.of_chain:
                heads = self._shared(prompts, call)
                if known.shared.correct(call, heads, counts.read):
                    asked = asked._replace(prompt=prompts.made(call, None))
                    prompt = asked.prompt
            known.heads |= {prompts.name(head): counts.read for head in prompt.heads if counts.read}
            return asked
        is_read_on = counts.read >= evidence.expected
        if evidence.why == "ttl" and found is None:
            known.lapsed[asked.head] = counts.read
        elif asked.before.thought and is_user_turn(call) and evidence.named in ("", "edit"):
            seen = known.turns[scope_of(call)] + (-1 if is_read_on else 1)
            known.turns[scope_of(call)] = max(-2, min(seen, 2))
        if not is_read_on and counts.read and evidence.why != "ttl" and prompt.heads:
            sizes = [prompts.sizes.get(at) for at in prompts.cache.path(prompt.tail)]
            if counts.read not in sizes:
                known.heads[asked.head] = counts.read
        is_rider = whose.chain != asked.before.call.conversation.chain
        if not (evidence.change or is_rider) and asked.total > asked.before.total:
            size = sum(each.size_bytes for each in (*asked.before.call.answer, *call.added))
            known.grown_bytes[call.model] += size
            known.grown_tokens[call.model] += asked.total - asked.before.total if size else 0
        if asked.is_stripped and is_read_on and asked.before.thought:
            return asked._replace(prompt=prompts.made(call, (asked.before.call, asked.before.prompt)))
        return asked

    def _changed(self, asked: Asked, read: int, cause: str) -> Asked:
        """Return a call whose prompt changed where only its counts, or its label, show it."""
        call, prompts, before = asked.call, asked.prompts, asked.before
        if cause == "user turn" and before is not None:
            return asked._replace(prompt=prompts.made(call, (before.call, before.prompt), True))
        owner, size = asked.prompt.owner, self._size(asked, asked.prompt.head)
        if cause in HEAD and owner.chain in self._known.shared.of_chain:
            prompts.renamed[owner.chain] = self._known.shared.begin(owner)
        asked = asked._replace(prompt=prompts.changed(call, asked.prompt, read, cause))
        self._guessed.setdefault(asked.head, size)
        return asked

    def _write(self, asked: Asked, marks: Sequence[tuple[int, str]], carried: int) -> None:
        """Write what the call leaves, and keep it for those that continue it."""
        call, prompts, prompt, rules = asked.call, asked.prompts, asked.prompt, asked.rules
        carried = carried if carried >= asked.minimum else 0
        prompts.sizes[prompt.tail] = carried or asked.total
        most_ns = _FOREVER_NS if rules.most_ns is None else rules.most_ns
        lives = (call.start_ns, call.first_ns)
        if asked.has_marks:
            latest = marks[-rules.most_marks :] if rules.most_marks else marks
            for at, ttl in latest:
                if self._size(asked, at) >= asked.minimum:
                    life = (*lives, TTL_NS[self._settings.ttl or ttl or self._ttl(asked)], most_ns)
                    prompts.cache.write([at], life)
        else:
            output = None if call.counts is None else call.counts.output
            output = self._known.tokens(call.model, call.answer) if output is None else output
            prompts.sizes[prompt.end] = carried = asked.total + output
            life = (*lives, TTL_NS[rules.default_ttl], most_ns)
            if rules.policy == "openai":
                prompts.cache.write_path(prompt.end, life)
            else:
                prompts.cache.write([at for at in (prompt.tail, prompt.end, prompt.fork) if at], life)
        self._ended[call.id] = Ended(call, prompt, asked.total, carried)


def rules_of(table: PriceTable, call: Call) -> tuple[Provider, ModelPrice | None]:
    """Return the rules of a call's model; those of its provider for a model that no table names."""
    found = table.row(call.model, call.start_ns)
    provider = call.conversation.provider
    return found or (table.policy(provider if provider in _PROVIDERS else "anthropic"), None)


def _cache(rules: Provider, settings: Settings) -> HostedCache:
    look_back = rules.look_back_blocks
    if look_back is not None and settings.counts_own_block:
        look_back -= 1
    return HostedCache(look_back, rules.searched_marks)


def split(counts: Counts | None) -> Counts | None:
    """Return counts that say what was read and written; None for those of a total alone."""
    return counts if counts is not None and counts.read + counts.written else None


def is_user_turn(call: Call) -> bool:
    """Return True if a plain message of the user ends a call's prompt."""
    return bool(call.added) and call.added[-1].kind == "user"


def changed(prompts: Prompts, asked: Asked, before: Ended) -> tuple[str, str]:
    """Return the cause of a prompt that does not begin with the one before, and what differs first."""
    call, last = asked.call, before.call
    if scope_of(call) != scope_of(last):
        return "model", f"model: {last.model}, then {call.model}"
    is_whole = call.history.kept is None and not asked.is_stripped
    if is_whole and call.parameters == last.parameters:
        return "", ""
    was, now = prompts.segments(before.prompt.tail), prompts.segments(asked.prompt.tail)
    same = first_difference(was, now)
    kind = was[same].kind if same < len(was) else ""
    where = f"{kind}: block {same + 1} of {len(was)}"
    if kind in ("tools", "system"):
        return kind, where
    if call.parameters != last.parameters:
        names = sorted({*call.parameters} | {*last.parameters})
        named = [name for name in names if call.parameters.get(name) != last.parameters.get(name)]
        return "parameters", "parameters: " + ", ".join(named)
    if not kind:
        return "", ""
    if call.history.event == "compaction":
        return "compaction", where
    return ("user turn", where) if asked.is_stripped else ("edit", where)
