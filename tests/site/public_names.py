"""Everything that a user can name: keys, verbs with their flags, formats, policies, routers, figures, columns, API.

``python tests/site/public_names.py`` (``make names``) writes the list, ``docs/data/public-names.txt``; a change
that adds a name commits it with the list. ``--since REVISION`` prints what a release has changed since another
one, and ends with 1 where a name is gone that CHANGELOG.md does not mention.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kvcache_sim
from kvcache_sim.metrics import columns
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.policies.table import POLICIES
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.policy_kinds import POLICY_KINDS
from kvcache_sim.workload.generate import KINDS
from kvcache_sim.workload.readers.format import FORMATS
from support.product.models import entry_names
from support.product.scenarios import commands, preset_names

ROOT = Path(__file__).resolve().parents[2]
LIST = "docs/data/public-names.txt"


def public_names() -> list[str]:
    """Return a line per name: its kind, the name, and its choices or unit."""
    tables = {"requests": columns.REQUEST_COLUMNS, "events": columns.EVENT_COLUMNS}
    tables |= {"series": columns.SERIES_COLUMNS, "causes": columns.MISS_COLUMNS, "slo": columns.SLO_COLUMNS}
    found = {
        "key": list(map(_key, key_lines())),
        "flag": list(_flags()),
        "trace format": list(FORMATS),
        "generator": list(KINDS),
        "policy": [row.example for row in POLICIES],
        **{".".join(key): list(kind.names) for key, kind in POLICY_KINDS.items()},
        "kvcache_sim": kvcache_sim.__all__,
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
    """Yield each verb and subcommand, and its options and arguments with the words that they take."""
    for line, command in commands():
        yield line
        for parameter in command.params:
            words = re.findall(r"'([^']*)'", str(parameter.type_descriptor.annotation))
            choices = f" ({' | '.join(words)})" if words else ""
            yield f"{line} {' '.join(parameter.opts)}{choices}"


def changes(before: list[str], now: list[str]) -> list[str]:
    """Return the lines that are gone, each after ``- ``, and those that are new, after ``+ ``."""
    gone, new = [line for line in before if line not in now], [line for line in now if line not in before]
    return [*(f"- {line}" for line in gone), *(f"+ {line}" for line in new)]


def unmentioned(changed: list[str], changelog: str) -> list[str]:
    """Return the names that are gone for good and that a changelog does not mention."""
    names = [re.split(r" [=(\[]", line[2:])[0] for line in changed]
    new = {name for name, line in zip(names, changed, strict=True) if line.startswith("+")}
    gone = [
        name for name, line in zip(names, changed, strict=True) if line.startswith("-") and name not in new
    ]
    return [name for name in gone if name.rpartition(" ")[2] not in changelog]


def main() -> int:
    """Write the list, or compare it with that of a revision."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", metavar="REVISION")
    since = parser.parse_args().since
    now = public_names()
    if since is None:
        (ROOT / LIST).write_text("\n".join(now) + "\n")
        return 0
    shown = subprocess.run(
        ["git", "show", f"{since}:{LIST}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    changed = changes(shown.stdout.splitlines(), now)
    print("\n".join(changed))
    missing = unmentioned(changed, (ROOT / "CHANGELOG.md").read_text())
    for name in missing:
        print(f"gone, and not in CHANGELOG.md: {name}", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
