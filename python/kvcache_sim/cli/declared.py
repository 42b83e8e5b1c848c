"""A verb's options, each declared once: a plain line is read directly, any other by typer.

A verb's function takes its options one by one, or in groups: a group is a ``Value`` whose fields are options.
A text after a type, ``Annotated[int, "tokens a block"]``, is an option with that help.

typer, with what it imports to convert values, takes a quarter of a short run. A command line of known
options with usable values needs none of it; typer prints help and the errors of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from kvcache_sim.base.values import Value


class Option:
    """An option: its names, else that of its parameter, and the other arguments of typer."""

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
    """A verb: a function whose options are annotated with ``Option``, ``Argument`` and ``CommandLine``.

    Types are str, int, flags (bool), ``Literal``, lists of str, and each of them or None.
    """

    def __init__(self, function: Callable[..., int]) -> None:
        self.function: Callable[..., int] = ungrouped(function)

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


def ungrouped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a verb's function with the options of its groups as parameters, all by their names."""
    from kvcache_sim.base.values import Value

    groups: dict[str, type[Value]] = {}
    parameters = []
    hints = _hints(function)
    for name, parameter in signature(function).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, Value):
            groups[name], fields = kind, _hints(kind)
            parameters += [_named(each, fields[each.name]) for each in signature(kind).parameters.values()]
        else:
            parameters.append(_named(parameter, kind))

    @wraps(function)
    def call(*positional: Any, **values: Any) -> Any:
        given = {
            name: group(**{field: values.pop(field) for field in group.__struct_fields__ if field in values})
            for name, group in groups.items()
        }
        return function(*positional, **given, **values)

    return _declaring(call, parameters)


def _hints(declared: Any) -> dict[str, Any]:
    """Return the types of parameters or fields; those that a module writes as text cost some 4 ms a verb."""
    written: dict[str, Any] = declared.__annotations__
    is_text = any(isinstance(kind, str) for kind in written.values())
    return get_type_hints(declared, include_extras=True) if is_text else written


def _named(parameter: Parameter, hint: Any) -> Parameter:
    """Return a parameter whose option has names: a flag's has no opposite."""
    kind, mark = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, None)
    if isinstance(mark, str):
        mark = Option(help=mark)
    if isinstance(mark, Option) and not mark.names:
        mark = Option(f"--{parameter.name.replace('_', '-')}", **mark.options)
    hint = hint if mark is None else Annotated[kind, mark]
    return parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY)


def _declaring(call: Callable[..., Any], parameters: Sequence[Parameter]) -> Callable[..., Any]:
    """Return a function, with these parameters for those who inspect it."""
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _readers(function: Callable[..., Any]) -> tuple[dict[str, tuple[str, Any]], list[tuple[str, Any]]]:
    """Return (parameter, its type) by option, and of each argument."""
    options: dict[str, tuple[str, Any]] = {}
    positions = []
    for name, parameter in signature(function).parameters.items():
        kind, mark = get_args(parameter.annotation)[:2]
        if isinstance(mark, Argument):
            positions.append((name, kind))
        elif isinstance(mark, Option):
            options |= dict.fromkeys(mark.names, (name, kind))
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
    """Return a verb's function as typer takes it: no groups, and its declarations are typer's own."""
    import typer

    verb = ungrouped(function)
    parameters, as_typed = [], ""
    for name, parameter in signature(verb).parameters.items():
        kind, mark = (*get_args(parameter.annotation)[:2], None, None)[:2]
        if mark is AS_TYPED:
            as_typed, parameter = name, parameter.replace(name="context", annotation=typer.Context)
        elif isinstance(mark, Option | Argument):
            parameter = parameter.replace(annotation=Annotated[kind, mark.for_typer()])
        parameters.append(parameter)

    @wraps(verb)
    def call(**values: Any) -> Any:
        if as_typed:
            values[as_typed] = values.pop("context").obj
        return verb(**values)

    return _declaring(call, parameters)
