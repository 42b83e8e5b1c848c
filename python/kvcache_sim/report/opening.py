"""What a report opens with, as HTML: what was simulated, and the figures people ask for first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import ascii_uppercase

from kvcache_sim.report.headline import Change, Headline


def opening(labels: Sequence[str], subjects: Sequence[str], cards: Sequence[Headline], note: str) -> str:
    """Return the lines of the runs, the cards, and a note on how the changes were measured."""
    several = len(labels) > 1
    lines = "".join(
        f'<p class="subject" title="{escape(text)}">{_letter(number) if several else ""}'
        f"<b>{escape(label)}</b> {escape(text)}</p>"
        for number, (label, text) in enumerate(zip(labels, subjects, strict=True))
    )
    shown = "".join(_card(card, several) for card in cards)
    explained = f'<p class="definition">{escape(note)}</p>' if note else ""
    return f'<div class="subjects">{lines}</div><div class="cards">{shown}</div>{explained}'


def _letter(number: int) -> str:
    return f'<span class="letter r{number % 6}">{letter(number)}</span> '


def _card(card: Headline, several: bool) -> str:
    values = "".join(
        f'<span class="value" data-run="{number}">{_letter(number) if several else ""}{escape(value)}</span>'
        for number, value in enumerate(card.values)
    )
    changes = "".join(
        _changed(number, change, len(card.values) > 2)
        for number, change in enumerate(card.changes)
        if change is not None
    )
    return (
        f'<div class="card" data-figure="{escape(card.key)}" title="{escape(card.definition)}">'
        f'<span class="words">{escape(card.words)}</span><span class="values">{values}</span>{changes}</div>'
    )


def _changed(number: int, change: Change, named: bool) -> str:
    way = "even" if change.better is None else "better" if change.better else "worse"
    word = "" if change.better is None else f' <span class="way">{way}</span>'
    interval = f'<span class="interval">{escape(change.interval)}</span>' if change.interval else ""
    who = f"{letter(number)} " if named else ""
    return (
        f'<span class="delta {way}" data-run="{number}">{who}<b>{escape(change.amount)}</b>{word}</span>'
        f"{interval}"
    )


def letter(number: int) -> str:
    """Return the short name of a run by its place, from 0: A to Z, then AA, AB, …"""
    name = ""
    number += 1
    while number:
        number, place = divmod(number - 1, len(ascii_uppercase))
        name = ascii_uppercase[place] + name
    return name
