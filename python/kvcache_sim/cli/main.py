"""The entry point: finds the verb, runs it, and turns every error into one line and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import signal
import sys
from types import FrameType
from typing import TextIO

from kvcache_sim import __version__
from kvcache_sim.base.errors import (
    EXIT_CODES,
    EXIT_INTERNAL,
    EXIT_IO,
    EXIT_OK,
    EXIT_SIGINT,
    EXIT_USAGE,
    InvariantError,
    KvsimError,
    UsageError,
    panics_as_errors,
    refusal_of,
)
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.stop_signals import exit_code_of, stop_signals
from kvcache_sim.cli import DROPPED, LOADS_PLUGINS, VERBS
from kvcache_sim.cli.declared import Verb
from kvcache_sim.cli.former import current_words
from kvcache_sim.policies.plugins import permission

_EXAMPLES = """\
Examples:
  kvsim simulate -c preset:quickstart
  kvsim simulate trace.jsonl --set tiers.gpu.capacity='16384 blocks' --set tiers.cpu.capacity=512GiB
  kvsim init > my.yaml
  kvsim help exit-codes"""


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; unwinds like any exit, so that temporary files go; no plug-in's own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; every failure has printed one line on stderr."""
    _open_standard_files()
    for standard in (sys.stdout, sys.stderr):
        if hasattr(standard, "reconfigure"):
            standard.reconfigure(errors="backslashreplace")
    for number in stop_signals():
        if number != signal.SIGINT:  # the interpreter's own raises KeyboardInterrupt
            signal.signal(number, _terminate)
    permission.announce_plugins()
    code = _outcome(argv)
    for stream in (sys.stdout, sys.stderr):
        _drop_unwritten(stream)
    return code


def _outcome(argv: list[str]) -> int:
    """Run one command line and return its exit code; a failure has printed its line."""
    try:
        if sys.stdout is None:  # closed by the shell, as in 'kvsim … >&-'
            raise BrokenPipeError
        for argument in argv:
            _refuse_undecodable(argument)
        with panics_as_errors():
            code = dispatch(argv)
        sys.stdout.flush()
        return code
    except InvariantError as error:
        return _report_bug(error, argv)
    except KeyboardInterrupt:
        return _fail(EXIT_CODES[EXIT_SIGINT], EXIT_SIGINT)
    except Terminated as ended:
        code = exit_code_of(ended.number)
        return _fail(EXIT_CODES[code], code)
    except BrokenPipeError:
        if sys.stdout is not None:
            return EXIT_IO  # the reader closed the pipe, as in 'kvsim … | head': print nothing
        return _fail("error: stdout was closed before everything was printed", EXIT_IO)
    except Exception as error:
        refusal = refusal_of(error)
        return _report_bug(error, argv) if refusal is None else _refuse(refusal)


def _open_standard_files() -> None:
    """Open the null device for standard input and error if the shell closed them.

    No file that is opened later gets their numbers.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _drop_unwritten(stream: TextIO | None) -> None:
    """Send what a full or closed file does not take to the null device.

    The interpreter writes it once more as it exits, and would end with lines and a code of its own.
    """
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _refuse_undecodable(text: str) -> None:
    """Raise UsageError for an argument that is not UTF-8: results are written as UTF-8 text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(text).decode(errors="backslashreplace")
        raise UsageError("not UTF-8", where=shown, hint="rename the file") from None


def dispatch(argv: list[str]) -> int:
    """Run the verb that ``argv`` names and return its exit code; errors pass through."""
    if not argv or argv[0] in ("--help", "-h"):
        print(_overview())
        return EXIT_OK if argv else EXIT_USAGE
    if argv[0] == "--version":
        print(f"kvsim {__version__}")
        return EXIT_OK
    verb = argv[0]
    if verb in DROPPED:
        raise UsageError(f"no such verb: {verb}", hint=DROPPED[verb])
    if verb not in VERBS:
        kind = "option" if verb.startswith("-") else "verb"
        raise UsageError(f"no such {kind}: {verb}", hint=_did_you_mean(verb))
    arguments = argv[1:]
    with contextlib.ExitStack() as permissions:
        if "--no-plugins" in arguments:
            arguments = [argument for argument in arguments if argument != "--no-plugins"]
            permissions.enter_context(permission.refused())
        if verb not in LOADS_PLUGINS and "--plugins" not in arguments:
            permissions.enter_context(permission.names_only())
        return _invoke(verb, current_words(verb, arguments))


def _invoke(verb: str, arguments: list[str]) -> int:
    """Import a verb's module and run its command: parse errors become a UsageError.

    The command finds the command line as typed in its context's ``obj``.
    """
    command_line = ["kvsim", verb, *arguments]
    module = importlib.import_module(VERBS[verb][0])
    app = getattr(module, "app", None)
    if app is None:
        raise UsageError(f"{module.__name__} defines no command", where=verb, expected="app = Verb(function)")
    if isinstance(app, Verb) and (values := app.read(arguments)) is not None:
        return app.function(command_line, **values)

    from typer import Exit
    from typer.main import get_command

    from kvcache_sim.cli.verb import typer_app

    command = get_command(typer_app(app))
    try:
        names = ["-h", "--help"]
        with command.make_context(
            f"kvsim {verb}", list(arguments), obj=command_line, help_option_names=names
        ) as context:
            result = command.invoke(context)
            return result if isinstance(result, int) else EXIT_OK
    except Exit as finished:
        return finished.exit_code
    except Exception as error:
        # The parser's own errors format their message; their class moved between releases of the parser.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        refusal = " ".join(message().split()).replace(": Value error, ", ": ")
        asked = getattr(getattr(error, "ctx", None), "command_path", None) or f"kvsim {verb}"
        raise UsageError(refusal.rstrip("."), hint=f"try '{asked} --help'") from None


def _overview() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {line}" for verb, (_, line) in VERBS.items())
    return (
        "kvsim replays LLM traffic over KV-cache tiers: what is reused, and where the time goes.\n\n"
        "Usage: kvsim VERB [OPTIONS]      kvsim VERB --help      kvsim --version\n\n"
        "Every verb takes --no-plugins: no policy from a file or package is imported.\n\n"
        f"Verbs:\n{verbs}\n\n{_EXAMPLES}"
    )


def _did_you_mean(verb: str) -> str:
    close = close_matches(verb, VERBS, n=1)
    return f"did you mean {close[0]!r}?" if close else f"verbs: {', '.join(VERBS)}"


def _terminate(signum: int, frame: FrameType | None) -> None:
    del frame
    raise Terminated(signum)


def _refuse(error: KvsimError) -> int:
    return _fail(str(error) if error.where else f"error: {error}", error.exit_code)


def _fail(line: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr may be closed too: the exit code remains
        print(line, file=sys.stderr, flush=True)
    return code


def _report_bug(error: BaseException, argv: list[str]) -> int:
    """Save the traceback with the command that led to it; print its path, in one line."""
    import tempfile
    import traceback

    again = shlex.join(["kvsim", *argv])
    location = "KVSIM_TRACEBACK=1 prints it"
    text = f"kvsim {__version__}, python {sys.version}\n{again}\n\n{traceback.format_exc()}"
    if os.environ.get("KVSIM_TRACEBACK"):
        print(text, file=sys.stderr)
    else:
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="kvsim-bug-", suffix=".txt", delete=False, errors="backslashreplace"
            ) as bundle:
                bundle.write(text)
            location = f"traceback saved in {bundle.name}"
        except OSError:
            pass  # the bundle cannot be written: print the line alone
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return _fail(f"internal error: {reason}; {location}; reproduce with: {again}", EXIT_INTERNAL)
