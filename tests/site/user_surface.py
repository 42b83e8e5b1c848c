"""Everything that a user can name: keys, verbs with their flags, formats, policies, figures and columns.

``python tests/site/user_surface.py > FILE`` writes it down; it reads the package as of 091aed3 too, with that
commit's ``python/`` first on the path.
"""

import importlib
import re
from collections.abc import Iterator
from typing import Any

from kvcache_sim.cli import VERBS
from kvcache_sim.cli.declared import typer_app
from kvcache_sim.metrics import columns
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.model.catalog import entry_names
from kvcache_sim.policies.table import POLICIES
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.presets import preset_names
from kvcache_sim.workload.generate import KINDS
from kvcache_sim.workload.readers.format import FORMATS


def surface() -> list[str]:
    """Return a line per name: its kind, the name, and its choices or unit."""
    tables = {"requests": columns.REQUEST_COLUMNS, "events": columns.EVENT_COLUMNS}
    tables |= {"series": columns.SERIES_COLUMNS, "causes": columns.MISS_COLUMNS, "slo": columns.SLO_COLUMNS}
    found = {
        "key": list(map(_key, key_lines())),
        "flag": list(_flags()),
        "trace format": list(FORMATS),
        "generator": list(KINDS),
        "policy": [row.example for row in POLICIES],
        "figure": [f"{figure.name} [{figure.unit}]" for figure in FIGURES],
        "column": [
            f"{of}.{name}: {one.dtype}" for of, table in tables.items() for name, one in table.items()
        ],
        "event kind": list(columns.EVENT_KINDS),
        "outcome": [*columns.OUTCOMES, *columns.STATUSES],
        "preset": preset_names(),
        **{folder: list(entry_names(folder)) for folder in ("models", "gpus", "channels", "step_times")},
    }
    return [f"{what}: {name}" for what, names in found.items() for name in names]


def _key(line: str) -> str:
    """Return a key with its default, and the words that it takes."""
    name, default, meaning = line.split(None, 2)
    words = meaning.partition(": ")[0]
    return f"{name} = {default}" + (f" ({words})" if " | " in words else "")


def _flags() -> Iterator[str]:
    from typer.main import get_command

    for verb, (module, _) in VERBS.items():
        command: Any = get_command(typer_app(importlib.import_module(module).app))
        yield from _of_command(verb, command)
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            yield from _of_command(f"{verb} {name}", command.get_command(None, name))


def _of_command(line: str, command: Any) -> Iterator[str]:
    """Yield a verb, and each of its options and arguments with the words that it takes."""
    yield line
    for parameter in command.params:
        words = re.findall(r"'([^']*)'", str(parameter.type_descriptor.annotation))
        choices = f" ({' | '.join(words)})" if words else ""
        yield f"{line} {' '.join(parameter.opts)}{choices}"


if __name__ == "__main__":
    print("\n".join(surface()))
