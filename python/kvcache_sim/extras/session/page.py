"""The bill of sessions as a page: each prompt's timeline, a bar a call, over the tables of the screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kvcache_sim.extras.session.bill import Bill, measured
from kvcache_sim.extras.session.calls import Call, Predicted
from kvcache_sim.extras.session.screen import (
    causes_table,
    clock,
    costliest_table,
    given,
    headline,
    models_table,
    sentences,
    what_if_table,
)
from kvcache_sim.extras.session.texts import Differing
from kvcache_sim.extras.session.what_if import WhatIf
from kvcache_sim.report.page import build_page
from kvcache_sim.report.parts import Part, Section, verdict_html
from kvcache_sim.report.picture import Table

#: Conversations that are drawn, those of most tokens, and the most bars of each.
_MOST_DRAWN = 12
_MOST_BARS = 400
#: Fewest bars that fill the width: a conversation of one call has no bar as wide as the page.
_FEWEST_BARS = 12
_HEIGHT = 150
_COSTLIEST = 50
_NO_TEXTS: Mapping[str, Differing] = {}
#: Causes that change the content of a prompt; after the others the same content is written again.
_EDITS = ("model", "tools", "system", "parameters", "compaction", "edit", "user turn")
#: Parts of a bar from the bottom: class and meaning.
_PARTS = {
    "read": "read from the cache",
    "again": "written again, unchanged",
    "edited": "written again after an edit",
    "new": "new, written",
    "uncached": "not cached",
}
_STYLE = """<style>
:root { --read: #9db8d4; --again: #c2410c; --edited: #7c3aed; --new: #15803d; --uncached: #b59a1b; }
@media (prefers-color-scheme: dark) {
  :root { --read: #41607f; --again: #f97316; --edited: #a78bfa; --new: #4ade80; --uncached: #e5c84b; } }
.read { fill: var(--read); background: var(--read); } .again { fill: var(--again); background: var(--again); }
.edited { fill: var(--edited); background: var(--edited); } .new { fill: var(--new); background: var(--new); }
.uncached { fill: var(--uncached); background: var(--uncached); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 0.87rem; margin: 8px 0; }
.legend i { display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.4em; border-radius: 2px; }
svg.timeline { display: block; width: 100%; height: 150px; background: var(--panel);
  border-bottom: 1px solid var(--line); }
.chain { margin: 14px 0; } .chain p { margin: 2px 0; font-size: 0.82rem; color: var(--soft); }
.chain p.ends { display: flex; justify-content: space-between; gap: 12px; }
</style>"""


def page(bill: Bill, what_if: Sequence[WhatIf] = (), texts: Mapping[str, Differing] = _NO_TEXTS) -> str:
    """Return the page as HTML: the same bill gives the same bytes."""
    parts: list[Part] = [Section("Models", "Tokens and dollars by the log's own counts.", models_table(bill))]
    if bill.breaks:
        definition = "Calls that read less than the calls before left in the cache, the dearest cause first."
        parts.append(Section("Causes", definition, causes_table(bill)))
        parts.append(Section("The costliest calls", "", costliest_table(bill, _COSTLIEST)))
    if texts:
        parts.append(Section("What differs first", "Texts of the logs (--texts).", _texts_table(bill, texts)))
    if what_if:
        parts.append(Section("What if", "; ".join(given(what_if)), what_if_table(what_if)))
    return build_page("Prompt caches of agents' sessions", bill.said, parts, _opening(bill))


def _texts_table(bill: Bill, texts: Mapping[str, Differing]) -> Table:
    rows = [(clock(call.start_ns), *texts[call.id]) for call in bill.calls if call.id in texts]
    return Table(("UTC", "before", "then"), tuple(rows))


def _opening(bill: Bill) -> str:
    chains: dict[str, list[tuple[Call, Predicted]]] = {}
    for call, each in zip(bill.calls, bill.predicted, strict=True):
        chains.setdefault(call.conversation.chain, []).append((call, each))
    most = sorted(chains, key=lambda name: -sum(measured(call).prompt for call, _ in chains[name]))[
        :_MOST_DRAWN
    ]
    legend = "".join(f'<span><i class="{name}"></i>{words}</span>' for name, words in _PARTS.items())
    drawn = "".join(_chain(name, chains[name]) for name in chains if name in most)
    left = len(chains) - len(most)
    rest = f'<p class="definition">{left:,} shorter conversations are not drawn.</p>' if left else ""
    opening = verdict_html([headline(bill)]) + "".join(f"<p>{escape(said)}</p>" for said in sentences(bill))
    return f'{_STYLE}{opening}<div class="legend">{legend}</div>{drawn}{rest}'


def _chain(name: str, calls: Sequence[tuple[Call, Predicted]]) -> str:
    width = -(-len(calls) // _MOST_BARS)
    bars = [_bar(calls[at : at + width]) for at in range(0, len(calls), width)]
    top = max(max(sum(bar) for bar in bars), 1)
    paths = "".join(
        f'<path class="{part}" d="{_path(bars, number, top)}"/>' for number, part in enumerate(_PARTS)
    )
    size = f"0 0 {max(len(bars), _FEWEST_BARS)} {_HEIGHT}"
    breaks = [(at, each) for at, (_, each) in enumerate(calls) if each.is_break]
    marks = "".join(
        f'<rect x="{at // width}" y="0" width="1" height="{_HEIGHT}" fill="transparent">'
        f"<title>{escape(_title(at, calls[at]))}</title></rect>"
        for at, _ in breaks
    )
    of = f", {width} calls a bar" if width > 1 else ""
    count = f"{len(calls):,} call{'s' * (len(calls) != 1)}"
    label = f"{count}{of}, prompts to {top:,} tokens, {len(breaks):,} break{'s' * (len(breaks) != 1)}"
    return (
        f'<div class="chain"><p><b>{escape(name)}</b>: {label}</p>'
        f'<svg class="timeline" role="img" aria-label="{escape(label)}" viewBox="{size}"'
        f' preserveAspectRatio="none">{paths}{marks}</svg>'
        f'<p class="ends"><span>{clock(calls[0][0].start_ns)}</span>'
        f"<span>{clock(calls[-1][0].start_ns)} UTC</span></p></div>"
    )


def _bar(calls: Sequence[tuple[Call, Predicted]]) -> list[int]:
    """Return the tokens of a bar by part; of several calls, those of the longest prompt."""
    call, each = max(calls, key=lambda pair: measured(pair[0]).prompt)
    counts = measured(call)
    again = min(each.lost_tokens, counts.written) if each.is_break else 0
    is_edit = each.cause in _EDITS
    parts = counts.read, 0 if is_edit else again, again if is_edit else 0, counts.written - again
    return [*parts, counts.uncached]


def _path(bars: Iterable[Sequence[int]], part: int, top: int) -> str:
    found = []
    for at, bar in enumerate(bars):
        low = _HEIGHT - round(_HEIGHT * sum(bar[:part]) / top, 1)
        height = round(_HEIGHT * bar[part] / top, 1)
        if height > 0:
            found.append(f"M{at + 0.05:g} {low:g}h.9v-{height:g}h-.9z")
    return "".join(found)


def _title(at: int, pair: tuple[Call, Predicted]) -> str:
    call, each = pair
    differs = f", {each.differs}" if each.differs else ""
    said = f"call {at + 1}, {clock(call.start_ns)} UTC: {each.cause}{differs}; lost {each.lost_tokens:,}"
    return f"{said}, read {measured(call).read:,}, written {measured(call).written:,} tokens"
