"""The ``app`` of a verb, made so that all verbs print help alike."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import Default


def verb_app(help_text: str | None = None) -> typer.Typer:
    """Return an empty app: plain help that keeps its examples as typed (mark them with ``\\b``)."""
    return typer.Typer(
        help=help_text or Default(None),  # typer takes None for a help of no text
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


class TraceGroup(TyperGroup):
    """A verb with subcommands that takes one positional trace itself, before or after its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a line: a subcommand's name first, or the verb's own trace and options."""
        if args and args[0] in self.commands:
            return super().parse_args(ctx, ["", *args])
        ctx.allow_interspersed_args = True
        rest = super().parse_args(ctx, args)
        surplus = [*ctx._protected_args, *rest]
        if surplus:
            ctx.fail(f"Got unexpected extra argument ({surplus[0]})")
        return rest
