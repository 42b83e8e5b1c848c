"""An engine's startup log: what it says of its release, its settings and its memory.

The words of a line differ by release; ``data/server_logs.toml`` has the patterns of a figure.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim._core import toml_values
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value

#: Figures of several ranks of which the engine takes the least.
_LEAST = ("KV", "tokens")
#: A startup log has at least one of these figures.
_NEEDED = frozenset({"KV", "keys", "tokens", "weights"})


class ServerLog(Value):
    """A startup log: ``release`` such as ``vllm@0.19.0`` ("": not said), settings and figures by name.

    ``words`` are the settings that are no numbers. Memory is in GiB. vLLM from 0.27.1 on prints activations
    together with the estimate of graphs; they are without it, and missing if it is not printed.
    """

    engine: str
    release: str
    settings: dict[str, float]
    words: dict[str, str]
    figures: dict[str, float]


@cache
def _patterns() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "server_logs.toml"
    table: dict[str, Any] = toml_values(path.read_text(encoding="utf-8"))
    return table


def read_server_log(path: Path) -> ServerLog:
    """Return what a server's log says; UsageError for a file that is no startup log of a known engine."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError("log not readable", where=str(path), got=error.strerror or "") from None
    found = {section: _found(each, text) for section, each in _patterns().items()}
    figures = {
        name: (min if name in _LEAST else max)(float(value.replace(",", "")) for value in values)
        for name, values in found["figures"].items()
    }
    if not figures.keys() & _NEEDED:
        expected = "lines such as 'Model loading took 15.0 GiB' or 'Load weight end. … avail mem=61.0 GB'"
        raise UsageError("no startup log of vLLM or SGLang", where=str(path), expected=expected)
    engine = next(iter(found["releases"] or found["engine"]), "vllm")
    release = f"{engine}@{found['releases'][engine][-1]}" if found["releases"] else ""
    settings = {name: values[-1] for name, values in found["settings"].items()}
    words = {name: value for name, value in settings.items() if not re.fullmatch(r"[\d.]+", value)}
    numbers = {name: float(value) for name, value in settings.items() if name not in words}
    return ServerLog(engine, release, numbers, words, _completed(figures))


def _found(named: dict[str, list[str]], text: str) -> dict[str, list[str]]:
    """Return by name the values of the first pattern that occurs."""
    each = ((name, re.findall(pattern, text)) for name, patterns in named.items() for pattern in patterns)
    first: dict[str, list[str]] = {}
    for name, values in each:
        if values:
            first.setdefault(name, values)
    return first


def _completed(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures with the parts that a log gives as sums: SGLang's KV, non-torch without weights."""
    found = dict(figures)
    if {"keys", "values"} <= found.keys():
        found["KV"] = round(found.pop("keys") + found.pop("values"), 2)
    if {"consumed", "weights"} <= found.keys():
        found["non-torch"] = round(found["consumed"] - found["weights"], 2)
        summed = found.pop("activations", 0.0)
        if "graphs" in found:
            found["activations"] = round(summed - found["graphs"], 2)
    return found
