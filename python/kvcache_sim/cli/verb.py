"""The ``app`` of a verb, made so that all verbs print help alike."""

from __future__ import annotations

import typer


def verb_app(help_text: str | None = None) -> typer.Typer:
    """Return an empty app: plain help that keeps its examples as typed (mark them with ``\\b``)."""
    return typer.Typer(
        help=help_text, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
