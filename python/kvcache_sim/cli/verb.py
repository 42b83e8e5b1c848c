"""The ``app`` of a verb, made so that all verbs print help alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.models import Default

from kvcache_sim.cli.declared import Verb, for_typer

F = TypeVar("F", bound=Callable[..., Any])


class VerbApp(typer.Typer):
    """An app whose commands take their options one by one or in groups, as ``cli.declared`` says."""

    def command(self, *named: Any, **options: Any) -> Callable[[F], F]:
        """Add a command, by its function."""
        return _adding(super().command(*named, **options))

    def callback(self, *named: Any, **options: Any) -> Callable[[F], F]:
        """Add the function that runs before a subcommand, or without one."""
        return _adding(super().callback(*named, **options))


def _adding(add: Callable[[Any], object]) -> Callable[[F], F]:
    def added(function: F) -> F:
        add(for_typer(function))
        return function

    return added


def verb_app(help_text: str | None = None) -> typer.Typer:
    """Return an empty app: plain help that keeps its examples as typed (mark them with ``\\b``)."""
    return VerbApp(
        help=help_text or Default(None),  # typer takes None for a help of no text
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def typer_app(app: Verb | typer.Typer) -> typer.Typer:
    """Return a verb's app as typer's."""
    if not isinstance(app, Verb):
        return app
    made = verb_app()
    made.command()(app.function)
    return made


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
