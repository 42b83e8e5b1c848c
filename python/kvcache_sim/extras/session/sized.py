"""Whole prompts of calls with the tokens of each block, and calls again of edited prompts.

The log's totals are exact. What a prompt has more than the one before is divided among its new blocks, and
the answer before, in proportion to their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kvcache_sim.base.values import Value
from kvcache_sim.extras.session.calls import Call, Counts, History, Segment
from kvcache_sim.extras.session.known import Known
from kvcache_sim.extras.session.predict import in_order
from kvcache_sim.extras.session.prompts import HEAD
from kvcache_sim.workload.context_edits import size_tokens

SizedPrompt = list[Segment]


class SizedCall(Value):
    """A call with its whole prompt; the first ``kept`` blocks are those of the call before and its answer."""

    call: Call
    prompt: SizedPrompt
    answer: SizedPrompt
    kept: int


def sized_calls(calls: Sequence[Call], known: Known, edited: Mapping[str, int]) -> list[SizedCall]:
    """Return calls in order of their start with whole prompts, whose blocks have tokens.

    ``edited`` has calls before which messages changed where no line shows it, and the tokens that stayed.
    """
    found: dict[str, SizedCall] = {}
    tails: dict[tuple[str, int], int] = {}
    renamed: dict[str, dict[str, str]] = {}
    for call in in_order(calls):
        before, history = found.get(call.history.before), call.history
        names = renamed.setdefault(call.conversation.chain, {})
        was = [] if before is None else [*before.prompt, *before.answer]
        was = was if history.kept is None else was[: history.kept]
        if call.id in edited:
            heads = sum(each.kind in HEAD for each in was)
            kept = tails.get((call.conversation.chain, edited[call.id]), heads)
            now = {each.name: f"{each.name} {call.id}" for each in was[kept:]}
            names |= {old: now.get(new, new) for old, new in names.items()} | now
            was = [*was[:kept], *(_renamed(each, now) for each in was[kept:])]
        known_sizes = {} if before is None or history.kept != 0 else _sizes(before)
        added = _named(call) if history.kept != 0 else [_renamed(each, names) for each in _named(call)]
        added = [known_sizes.get((each.kind, each.name), each) for each in added]
        total = size_tokens(added) if call.counts is None else call.counts.prompt
        left = total - size_tokens(was)
        if before is not None and history.kept is None and before.answer:
            first = len(before.prompt)  # the answer's own size shows now
            left += size_tokens(was[first:])
            said = [_renamed(each, names) for each in before.call.answer]
            new = _divided([*said, *added], left, known, call.model)
            was = [*was[:first], *new[: len(before.answer)]]
            added = new[len(before.answer) :]
        else:
            added = _divided(added, left, known, call.model)
        answer = [
            msgspec.structs.replace(each, tokens=known.tokens(call.model, [each])) for each in call.answer
        ]
        found[call.id] = SizedCall(call, [*was, *added], answer, len(was))
        if call.counts is not None:
            left = call.counts.read + call.counts.written
            tails[call.conversation.chain, left] = len(was) + len(added)
    return list(found.values())


def _renamed(block: Segment, names: Mapping[str, str]) -> Segment:
    """Return a block by its new name, if it has one."""
    name = names.get(block.name, block.name)
    return block if name == block.name else msgspec.structs.replace(block, name=name)


def _named(call: Call) -> list[Segment]:
    """Return the blocks that a call adds; those without a name, tools and system but, get one."""
    return [
        each if each.name or each.kind in HEAD else msgspec.structs.replace(each, name=f"{call.id} {number}")
        for number, each in enumerate(call.added)
    ]


def _sizes(before: SizedCall) -> dict[tuple[str, str], Segment]:
    return {(each.kind, each.name): each for each in (*before.prompt, *before.answer) if each.name}


def _divided(blocks: Sequence[Segment], tokens: int, known: Known, model: str) -> SizedPrompt:
    """Return blocks with these tokens in all: those without, in proportion to their bytes.

    Tools and system have what messages of that length leave.
    """
    head = [each for each in blocks if each.kind in HEAD and each.tokens is None]
    left = tokens - size_tokens(blocks)
    messages = [each for each in blocks if each.kind not in HEAD and each.tokens is None]
    of_head = max(0, left - known.tokens(model, messages)) if head else 0
    shares = {**_shares(head, of_head), **_shares(messages, left - of_head)}
    return [
        each if each.tokens is not None else msgspec.structs.replace(each, tokens=shares[id(each)])
        for each in blocks
    ]


def _shares(blocks: Sequence[Segment], tokens: int) -> dict[int, int]:
    """Return the tokens of each block, by bytes, as its identity; without bytes the last has all."""
    left, size, found = tokens, sum(each.size_bytes for each in blocks), dict[int, int]()
    for each in blocks:
        found[id(each)] = round(left * each.size_bytes / size) if size else 0
        left, size = left - found[id(each)], size - each.size_bytes
    if blocks:
        found[id(blocks[-1])] += left
    return found


def owners_of(sized: Sequence[SizedCall]) -> dict[str, str]:
    """Return by conversation the one that it continues; itself if none."""
    chains, found = dict[str, str](), dict[str, str]()
    for each in sized:
        chain = each.call.conversation.chain
        found.setdefault(chain, found.get(chains.get(each.call.history.before, ""), chain))
        chains[each.call.id] = chain
    return found


def riders(sized: Sequence[SizedCall]) -> list[SizedCall]:
    """Return the calls that continue another conversation than their own: a client's compactions."""
    owners = owners_of(sized)
    return [each for each in sized if owners[each.call.conversation.chain] != each.call.conversation.chain]


def without_compactions(sized: Sequence[SizedCall], instruction_tokens: int) -> list[SizedCall]:
    """Return calls as if the log had made no compaction: neither its own calls, nor the summaries.

    What such a call adds beyond its instruction are results that waited.
    """
    by_id = {each.call.id: each for each in sized}
    own_calls = {each.call.id for each in riders(sized)}
    asking = {each.call.history.before: each for each in sized if each.call.id in own_calls}
    whole: dict[str, SizedCall] = {}
    for each in sized:
        history, before = each.call.history, whole.get(each.call.history.before)
        if each.call.id in own_calls:
            continue
        if before is not None and history.event == "compaction":
            was, ask = [*before.prompt, *before.answer], asking.get(history.before)
            if ask is not None:
                tokens = size_tokens(ask.prompt[ask.kept :]) - instruction_tokens
                was = [*before.prompt, *ask.prompt[len(by_id[history.before].prompt) : ask.kept]]
                was.append(Segment("tool_result", f"{ask.call.id} waiting", tokens=max(0, tokens)))
            prompt = [*was, *each.prompt[each.kept + 1 :]]
            each = SizedCall(each.call, prompt, each.answer, len(was))
        elif before is not None and history.kept is None:
            prompt = [*before.prompt, *each.prompt[len(by_id[history.before].prompt) :]]
            each = SizedCall(each.call, prompt, each.answer, len(before.prompt) + len(before.answer))
        whole[each.call.id] = each
    return list(whole.values())


def as_calls(edited: Sequence[SizedCall]) -> list[Call]:
    """Return calls of whole prompts: each states what it adds, and its total alone."""
    last: dict[str, SizedCall] = {}
    calls = []
    for each in edited:
        call = each.call
        before = last.get(call.history.before)
        history, added = History(event=call.history.event), each.prompt
        if before is not None:
            was = [*before.prompt, *before.answer]
            same = _same(was, each.prompt)
            history = History(call.history.before, None if same == len(was) else same, call.history.event)
            added = each.prompt[same:]
        total = size_tokens(each.prompt)
        output = None if call.counts is None else call.counts.output
        calls.append(
            msgspec.structs.replace(
                call,
                history=history,
                added=tuple(added),
                answer=tuple(each.answer),
                counts=Counts(0, total, output=output),
            )
        )
        last[call.id] = each
    return calls


def _same(was: SizedPrompt, now: SizedPrompt) -> int:
    """Return the number of equal blocks at the beginning; an answer's size may be known better now."""
    for number, (one, other) in enumerate(zip(was, now, strict=False)):
        if one is not other and (one.kind, one.name) != (other.kind, other.name):
            return number
    return min(len(was), len(now))
