"""Simulated scenarios over every section, with faults inside the simulation."""

import contextlib
import json
import math
import random
import shlex
from collections.abc import Iterator
from pathlib import Path

from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from support import scenarios as drawing
from support.draft import TOKEN_BYTES
from support.scenarios import Scenario
from support.setting_effects import CHANGES

from vopr.finding import oracle
from vopr.oracles import judge
from vopr.shrink import without_parts

#: Faults inside the simulation, by the features that have them.
FAULTS = ("fleet-plan", "copies-lost", "slowed-channels", "aborts")
#: Caches and schedulers of engines, which the specification does not cover.
ENGINES = tuple(name for name, own in drawing.FEATURES.items() if own.is_cache and not own.spec)
PLUGINS = tuple(name for name in drawing.FEATURES if name.endswith("-plugin"))
#: Settings without effect that are taken out of a draw before it is given up.
_MOST_REPAIRS = 8
#: Settings that no feature draws, from the table of what each setting does; those that are refused are taken out.
MORE = sorted(
    {
        (key, value)
        for key, _, value in (row.assignment.partition("=") for row in CHANGES)
        if key.partition(".")[0]
        in ("cache", "session_view", "tiers", "replica", "router", "handover", "channels")
        or key.partition(".")[0]
        in ("cluster", "write", "fetch", "prefetch", "fleet", "tenants", "channel_choice")
        if "{folder}" not in value and "null" not in value
    }
)
#: Makes each call of a plug-in from the n-th on raise.


def draw(seed: int) -> Scenario:
    """Return a random scenario: a third of the draws have a fault, two of five only what the specification covers.

    Most of the others have an engine's cache or scheduler.
    """
    choice = random.Random(f"vopr {seed}")
    only_spec = choice.random() < 0.4
    features: list[str] = []
    if choice.random() < 0.35:
        features.append(choice.choice(FAULTS[2:3] if only_spec else FAULTS))
    raises = not only_spec and choice.random() < 0.08
    if raises:
        features.append(choice.choice(PLUGINS))
    elif not only_spec:
        features.append(choice.choice(ENGINES if choice.random() < 0.6 else list(drawing.FEATURES)))
    own = drawing.drawn(seed, features, only_spec)
    if choice.random() < 0.75:
        tighten(own, choice)
    for key, value in choice.sample(MORE, choice.choice([0, 0, 1, 2, 4])):
        own.settings.setdefault(key, value)
    if raises and "own.py" in own.files:
        fails_at = f"FAILS_AT = [{choice.choice([1, 2, 6, 41])}]"
        own.files["own.py"] = own.files["own.py"].replace("FAILS_AT = [0]", fails_at)
    return own


def tighten(own: Scenario, choice: random.Random) -> None:
    """Give the tiers of a scenario about as much space as its longest request takes, so that they evict.

    Those of a model whose layers keep unequal KV stay.
    """
    try:
        longest = longest_tokens(own)
    except UsageError:  # refused as it is
        return
    for name, shares in (("gpu", (1.05, 1.3, 2, 4)), ("cpu", (0.2, 0.7, 1.5, 4)), ("disk", (0.3, 1, 3, 9))):
        key, tokens = f"tiers.{name}.capacity", choice.choice(shares) * longest
        if str(own.settings.get(key)).endswith("blocks") and "model" not in own.settings:
            blocks = math.ceil(tokens / own.settings.get("cache.block_size", 512)) + 1
            own.settings[key] = f"{min(blocks, int(own.settings[key].split()[0]))} blocks"
        elif key in own.settings and "model" not in own.settings:
            own.settings[key] = f"{max(1, round(tokens * TOKEN_BYTES / 2**20))}MiB"


def longest_tokens(own: Scenario) -> int:
    """Return the tokens of the longest request of a scenario with its answer."""
    if "trace.jsonl" in own.files:
        rows = map(json.loads, own.files["trace.jsonl"].splitlines())
        return max(row["input_length"] + row["output_length"] for row in rows)
    named = {key: value for key, value in own.settings.items() if key == "seed" or key.startswith("workload")}
    requests = scenario_from_text("", "s.yaml", Path(), Scenario(named, {}, ()).arguments()[1::2])
    trace = read_requests(requests)
    return int((trace.input_tokens + trace.output_tokens).max())


def run(case: Scenario, folder: Path) -> str:
    """Run a scenario under all oracles; settings without effect are taken out first."""
    case = Scenario(dict(case.settings), case.files, case.features)
    case.write(folder)
    with contextlib.chdir(folder):  # where plug-ins that a setting names are looked for
        for _ in range(_MOST_REPAIRS):
            try:
                with oracle("loading", (UsageError,)):
                    scenario = scenario_from_text("", "s.yaml", folder, case.arguments()[1::2])
                    trace = read_requests(scenario)
                return judge(scenario, trace, folder, "own.py" in case.files)
            except UsageError as refused:
                if not _repair(case, refused):
                    break
            except KvsimError:  # of a plug-in that raised; no invariant, and in one line: ``oracle``
                return "failed in one line"
    return "refused"


def _repair(case: Scenario, refused: UsageError) -> bool:
    """Take a setting without effect out of a scenario, or one of ``MORE``; False if there is none."""
    key = refused.where.removeprefix("--set ")
    if "has no effect" in str(refused) and case.settings.pop(key, None) is not None:
        return True
    more = [own for own in case.settings.items() if own in MORE]
    return bool(more) and case.settings.pop(more[-1][0]) is not None


def smaller(case: Scenario) -> Iterator[Scenario]:
    """Yield a scenario with fewer requests, then without single settings, then with fewer trace rows."""
    requests = case.settings.get("workload.requests", 0)
    for count in sorted({requests // 2, requests * 3 // 4, requests - 1}):
        if 0 < count < requests:
            yield case._replace(settings={**case.settings, "workload.requests": count})
    for keys in without_parts(list(case.settings)):
        yield case._replace(settings={key: case.settings[key] for key in keys})
    if "trace.jsonl" in case.files:
        for rows in without_parts(case.files["trace.jsonl"].splitlines(keepends=True)):
            if rows:
                yield case._replace(files={**case.files, "trace.jsonl": "".join(rows)})


def shown(case: Scenario, folder: Path) -> str:
    """Return the line that runs a scenario; its files and settings are written into a folder."""
    case.write(folder)
    (folder / "settings.json").write_text(json.dumps(case.settings, indent=1))
    return f"(cd {folder}; kvsim simulate --check full {shlex.join(case.arguments())})"
