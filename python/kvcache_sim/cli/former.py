"""Former spellings of options: each runs as before and prints the current spelling in one line on stderr."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cli.notices import remark

#: Verbs whose output was ``--out``.
_OUT = ("curve", "policies", "trace")
#: Subcommands of ``trace`` whose ``--block-size`` was the trace's own; it is the written trace's elsewhere.
_OWN_BLOCKS = (
    "check", "stats", "convert", "head", "slice", "merge", "scale", "sample", "repeat", "anonymise", "tokens",
)  # fmt: skip


def current_words(verb: str, words: Sequence[str]) -> list[str]:
    """Return the words after a verb in the current spelling; prints a note for each former option.

    Args:
        verb: The verb, such as ``curve``.
        words: The words after it, as typed; those after ``--`` stay.

    Returns:
        The words for the parser: ``--out FILE`` as ``--output FILE``, ``sweep --trace FILE`` as ``FILE``.
    """
    end = words.index("--") if "--" in words else len(words)
    current: list[str] = []
    for word in words[:end]:
        option, equals, value = word.partition("=")
        now = _current(verb, words[0], option)
        if now is None:
            current.append(word)
            continue
        remark(f"{option} is now {now or 'TRACE, without an option'}")
        current += [f"{now}{equals}{value}"] if now else [value] * bool(equals)
    return [*current, *words[end:]]


def _current(verb: str, subcommand: str, option: str) -> str | None:
    """Return the current spelling of a former option, "" for the positional trace; None for other words."""
    if option == "--out" and verb in _OUT:
        return "--output"
    if option == "--trace" and verb == "sweep":
        return ""
    if option == "--block-size" and verb == "trace" and subcommand in _OWN_BLOCKS:
        return "--trace-block-size"
    return None
