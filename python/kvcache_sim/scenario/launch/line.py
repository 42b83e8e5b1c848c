"""The launch lines of a text: engine, model, flags, release, and what was set aside."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.argv import read_arguments
from kvcache_sim.scenario.launch.echo import shown
from kvcache_sim.scenario.launch.flags import Engine, launch_engine, launch_engines
from kvcache_sim.scenario.launch.named_files import file_options, with_lmcache_file
from kvcache_sim.scenario.launch.shell import read_shell
from kvcache_sim.scenario.launch.shell_words import WHERE, Command, Shell
from kvcache_sim.scenario.launch.starts import Start, find_image, find_start, release_of

#: Most characters of a text, most shells in each other, most launch lines, longest name.
MOST_CHARACTERS, _MOST_SHELLS = 1 << 17, 4
_MOST_LINES, _LONGEST_NAME = 64, 250
_VARIABLE = re.compile(r"(?:--env=|-e|--env )?\"?([A-Za-z_]\w*)=(?!=)(.*)", re.S)
#: Words before an engine's command that change nothing: its interpreter, variables and their option.
_NOTHING = re.compile(r"(?:\S*/)?python[\d.]*|-u|exec|env|-e|--env|(?:--env=|-e)?[A-Za-z_]\w*=(?!=).*", re.S)
#: Options before a word NAME=VALUE that is no variable.
_LABELS = ("-l", "--label", "--build-arg", "-v", "--volume", "--mount")
_LIST = re.compile(
    r"\s*(?:#[^\n]*\n\s*)*(?:\w+\s*=\s*|CMD\s+|ENTRYPOINT\s+|[\w.]+\(\s*)?(\[.*\])[\s)]*", re.S
)
_NESTED = re.compile(r"\b(?:serve|launch_server|api_server|trtllm-serve|dynamo\.\w+)\b")
_FILE_NAME = re.compile(r"\S+\.(ya?ml|json|sh|txt|env|toml|conf|service)|\.{0,2}/\S+")


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """A parsed launch line. ``flags`` are by canonical names, in order; "" for a flag that stands alone.

    ``environment`` are the variables that the engine sees, as NAME=VALUE; ``aside`` what the text has around
    the engine's command; ``release`` is as in ``vllm@0.11.2``; ``router`` the policy of one that it starts.
    ``refusal`` is raised once the model is known: a file that the line names is not here.
    """

    engine: Engine
    model: str
    flags: dict[str, str]
    environment: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    release: str = ""
    router: str = ""
    refusal: UsageError | None = None


@dataclass
class Surroundings:
    """Surroundings of a command: variables, images, files, and a chart's arguments that it lacks."""

    environment: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    usual: tuple[str, ...] = ()


def lines_of_shell(text: str, around: Surroundings, model: str = "", level: int = 0) -> list[LaunchLine]:
    """Return the launch lines of shell text; ``model`` stands in for one that the text does not resolve."""
    words = _python_list(text)
    shell = Shell(variables={name: [value] for name, value in around.environment.items()})
    shell.exported = dict.fromkeys(around.environment)
    shell = Shell(commands=[Command(words)]) if words else read_shell(text, shell)
    shell.files = {**around.files, **shell.files}
    found: list[LaunchLine] = []
    others = []
    started: list[tuple[Command, list[LaunchLine]]] = []
    for command in shell.commands:
        started.append((command, _started(command, shell, around, model, level)))
        if sum(len(lines) for _, lines in started) > _MOST_LINES:
            raise UsageError("too many launch lines", where=WHERE, expected=f"at most {_MOST_LINES}")
    if sum(bool(lines) and command.conditional for command, lines in started) > 1:
        raise UsageError("launch lines in branches", where=WHERE, hint="give the one that runs")
    for command, lines in started:
        found += lines
        if not lines and command.words[0] not in ("export", "set", "declare"):
            others.append(" ".join([*command.words, *command.redirections]))
    return [_with_aside(line, others) for line in found]


def no_launch_line(text: str) -> UsageError:
    """Return the refusal of a text in which no engine starts."""
    known = " or ".join(f"'{' '.join(engine.starts[0])} …'" for engine in launch_engines())
    what = "no such file" if _FILE_NAME.fullmatch(text.strip()) else "not a launch line"
    return UsageError(what, where=WHERE, got=repr(shown(text[:200]))[:60], expected=known)


def _started(
    command: Command, shell: Shell, around: Surroundings, model: str, level: int
) -> list[LaunchLine]:
    """Return the launch lines of a command: its own, or those of a text that it hands to another shell."""
    here = Surroundings(
        {**around.environment, **command.environment}, around.words, shell.files, around.usual
    )
    start = find_start(command.words)
    if start is not None:
        return [_with_aside(_line(start, shell, here, model), command.redirections)]
    joined = [" ".join(command.words[1:])] if command.words[:1] == ["eval"] else command.words
    for word in joined:
        if level < _MOST_SHELLS and _NESTED.search(word) and re.search(r"\s", word):
            here.words = (*around.words, *command.words)
            here.environment |= _variables(command.words)
            lines = lines_of_shell(word, here, model, level + 1)
            if lines:
                aside = [" ".join(one for one in command.words if one != word), *command.redirections]
                return [_with_aside(line, aside) for line in lines]
    start = find_image(command.words)
    return [] if start is None else [_with_aside(_line(start, shell, here, model), command.redirections)]


def _line(start: Start, shell: Shell, around: Surroundings, model: str) -> LaunchLine:
    engine = launch_engine(start.engine)
    environment = around.environment | _variables(start.before)
    release = release_of((*start.before, *around.words), engine.name)
    words = list(start.arguments)
    before, after, refusal = list[str](), list[str](), None
    try:
        before, after = file_options(engine.name, words, shell.files)
        environment = with_lmcache_file(environment, shell.files)
    except UsageError as error:
        refusal = error
    read = read_arguments(engine, [*words, *after], release, [*around.usual, *before])
    named = read.model or model
    if not named and refusal is not None:
        raise refusal
    if not named:
        expected = f"{' '.join(engine.starts[0])} MODEL …"
        raise UsageError("no model", where=WHERE, expected=expected, hint="--model NAME says which it is")
    if len(named) > _LONGEST_NAME:
        raise UsageError("no model's name", where=WHERE, got=repr(shown(named))[:60], hint="--model NAME")
    flags = dict(read.flags)
    _refuse_unset(engine, flags, "" if model else named, shell)
    aside = [word for word in start.before if not _NOTHING.fullmatch(word)]
    variables = tuple(f"{name}={value}" for name, value in environment.items())
    return LaunchLine(
        engine, named, flags, variables, (" ".join(aside),) if aside else (), release, start.router, refusal
    )


def _refuse_unset(engine: Engine, flags: Mapping[str, str], model: str, shell: Shell) -> None:
    """Refuse a value that decides a setting and that the text leaves open."""
    for where, value in (("--model", model), *flags.items()):
        row = engine.flags.get(where)
        decides = where == "--model" or (row is not None and bool(row.key) and not value.startswith("{"))
        for text, name in shell.unset.items() if decides else ():
            if text in value and text != "":
                hint = f"write {name}=VALUE before the line" if name.isidentifier() else "write its value"
                hint += ", or --model NAME" if where == "--model" else ""
                what = (
                    "a variable that the text does not set" if name else "a value that the text does not give"
                )
                raise UsageError(what, where=where, got=repr(shown(value))[:60], hint=hint)


def _variables(words: Sequence[str]) -> dict[str, str]:
    """Return the variables among the words before an engine's command: ``A=b``, ``-e A=b``, ``--env=A=b``."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        match = _VARIABLE.fullmatch(word)
        if match and not (at and words[at - 1] in _LABELS):
            found[match[1]] = match[2]
    return found


def _with_aside(line: LaunchLine, more: Sequence[str]) -> LaunchLine:
    return replace(line, aside=(*line.aside, *more))


def _python_list(text: str) -> list[str]:
    """Return the words of a command in a list, as Python and Docker write it; [] for another text."""
    found = _LIST.fullmatch(text)
    if found is None:
        return []
    try:
        words = ast.literal_eval(found[1])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [str(word) for word in words] if all(isinstance(word, str | int | float) for word in words) else []
