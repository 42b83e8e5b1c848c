"""A verb whose options are declared once: a plain line is read directly, any other by typer.

typer, with what it imports to convert values, takes a quarter of a short run. A command line of known
options with usable values needs none of it; typer prints help and the errors of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import typer


class Option:
    """An option: its names (else its parameter's), and the other arguments of typer."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.names, self.options = names, options

    def for_typer(self) -> Any:
        """Return the declaration for typer."""
        from typer import Option as TyperOption

        return TyperOption(*self.names, **self.options)


class Argument:
    """An argument, and its arguments of typer."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def for_typer(self) -> Any:
        """Return the declaration for typer."""
        from typer import Argument as TyperArgument

        return TyperArgument(**self.options)


#: Marks the parameter that takes the command line as it was typed.
AS_TYPED = object()
CommandLine = Annotated[list[str], AS_TYPED]


class Verb:
    """A verb: a function whose parameters are annotated with ``Option``, ``Argument`` and ``CommandLine``.

    Types are str, int, flags (bool), ``Literal``, lists of str, and each of them or None.
    """

    def __init__(self, function: Callable[..., int]) -> None:
        self.function = function

    def read(self, arguments: Sequence[str]) -> dict[str, Any] | None:
        """Return the values that a plain line gives, by parameter; None where typer has to read it.

        Plain is a line of whole names of options, each given once (lists apart), of values that their types
        take and that do not look like options, and of no more arguments than there are.
        """
        options, positions = _readers(self.function)
        given: dict[str, Any] = {}
        rest = list(reversed(arguments))
        while rest:
            word = rest.pop()
            if word in options:
                name, kind = options[word]
            elif positions:
                name, kind = positions.pop(0)
                rest.append(word)
            else:
                return None
            if kind is bool and name not in given:
                given[name] = True
            elif not rest or not _take(given, name, kind, rest.pop()):
                return None
        return given

    def for_typer(self) -> typer.Typer:
        """Return the verb as typer's app."""
        from kvcache_sim.cli.verb import verb_app

        app = verb_app()
        app.command()(for_typer(self.function))
        return app


def _readers(function: Callable[..., Any]) -> tuple[dict[str, tuple[str, Any]], list[tuple[str, Any]]]:
    """Return (parameter, its type) by option, and of each argument."""
    options: dict[str, tuple[str, Any]] = {}
    positions = []
    for name, hint in get_type_hints(function, include_extras=True).items():
        kind, mark = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, None)
        if isinstance(mark, Argument):
            positions.append((name, kind))
        elif isinstance(mark, Option):
            for option in mark.names or (f"--{name.replace('_', '-')}",):
                options[option] = name, kind
    return options, positions


def _take(given: dict[str, Any], name: str, kind: Any, text: str) -> bool:
    """Store a value in ``given``; return True if typer need not check it."""
    arms = [arm for arm in get_args(kind) if arm is not type(None)] if _optional(kind) else [kind]
    arm = arms[0]
    usable = text == "-" or not text.startswith("-")
    if get_origin(arm) is list:
        given.setdefault(name, []).append(text)
        return usable
    if get_origin(arm) is Literal:
        usable = text in get_args(arm)
    elif arm is int:
        usable = text.isascii() and text.isdigit() and len(text) < 19
    usable = usable and name not in given
    if usable:
        given[name] = int(text) if arm is int else text
    return usable


def _optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


def for_typer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a verb's function as typer takes it: its declarations are typer's own."""
    import typer

    parameters, as_typed = [], ""
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        hint = hints[name]
        mark = get_args(hint)[1] if get_origin(hint) is Annotated else None
        if mark is AS_TYPED:
            name, as_typed, hint = "context", name, typer.Context
        elif isinstance(mark, Option | Argument):
            hint = Annotated[get_args(hint)[0], mark.for_typer()]
        parameters.append(Parameter(name, parameter.kind, default=parameter.default, annotation=hint))

    def call(**values: Any) -> Any:
        if as_typed:
            values[as_typed] = values.pop("context").obj
        return function(**values)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = signature(function).replace(parameters=parameters, return_annotation=int)  # type: ignore[attr-defined]
    return call


def typer_app(app: Verb | typer.Typer) -> typer.Typer:
    """Return a verb's app as typer's."""
    return app.for_typer() if isinstance(app, Verb) else app
