"""Each key of the schema by ``--set`` alone: it changes a figure in the expected direction, or says why it
cannot."""

import dataclasses
import functools
import re
from typing import get_origin

import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.scenario.execute import execute, summarized
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.measure import measured_requests
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import Section, defaults, keys, parts, section_in
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.generate.build import KINDS
from msgspec import Meta
from support.product.reports import flatten
from support.setting_effects import CHANGES, GENERATED, REFUSALS, Change, Refusal, settings_of
from support.setting_traces import filled
from support.tiered_scenario import load

#: Fields that hold further sections or free keys; their keys have rows of their own.
HOLDERS = {"machines", "channels", "workload", "slo.classes", "tenants.of", "models.of"}


@functools.cache
def figures(overrides: tuple[str, ...]) -> dict:
    """Return every figure of a run by its dotted name, the counters among them."""
    scenario = load(*overrides)
    trace = read_requests(scenario)
    run = simulate(scenario.settings, trace)
    summary = summarized(scenario, trace, run, measured_requests(scenario, trace))[1]
    rows = run.requests
    late = rows["turn"] >= 2
    queued = {}
    for use in run.channels:
        name = f"queued on {re.sub('(-[0-9]+)+$', '', use.name)}"
        queued[name] = queued.get(name, 0) + use.queued_ns
    of_late_turns = {
        "share of queueing in later turns": rows["queue_ns"][late].sum() / max(rows["queue_ns"].sum(), 1)
    }
    own = {"name": scenario.model.name, "prefetched_blocks": 0}
    return {**own, **of_late_turns, **queued, **run.counters, **flatten(summary)}


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: row.assignment)
def test_a_setting_changes_a_figure_in_the_expected_direction(row: Change, folder):
    before = figures(filled((*row.given, *row.against), folder)).get(row.figure, 0)
    after = figures(filled((*row.given, row.assignment), folder)).get(row.figure, 0)
    if row.direction == "differs":
        assert after != before
    else:
        assert after > before if row.direction == "up" else after < before


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: f"{row.assignment} {' '.join(row.given)}")
def test_a_setting_that_cannot_matter_is_refused_with_the_reason(row: Refusal, folder):
    with pytest.raises(KvsimError, match=re.escape(row.words)) as refused:
        figures(filled((*row.given, row.assignment), folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("causes", [False, True])
@pytest.mark.parametrize("group", ["TENANTS", "MODELS", "TEAMS"])
def test_a_run_that_is_written_meanwhile_has_the_same_summary(group, causes, folder, tmp_path):
    scenario = load(*filled(tuple(settings_of([group])), folder))
    trace, options = read_requests(scenario), RunOptions(causes=causes)
    kept = execute(scenario, trace, options).summary
    with open_run_directory(tmp_path / "run", False) as directory:
        written = execute(scenario, trace, options, directory=directory).summary
    assert {**kept, "wall": None} == {**written, "wall": None}


# --- every key and every choice has a row ------------------------------------------------------------------


def keys_with_rows() -> set[str]:
    """Return the keys that rows set, with the machine's number and the channel's name taken out."""
    found = set()
    for row in (*CHANGES, *REFUSALS):
        key = row.assignment.partition("=")[0]
        key = re.sub(r"^machines\[\d+\]", "machines[k]", key)
        found.add(re.sub(r"^(channels|slo\.classes|tenants\.of|models\.of)\.[\w-]+", r"\1.NAME", key))
        if row.assignment.partition("=")[2] == "null":
            found.add(f"{key}.capacity")
    return found


def test_every_key_of_the_schema_has_a_row():
    wanted = {line.split()[0] for line in key_lines()} - HOLDERS
    for section in keys(MachineSection):
        inner = {f"machines[k].{key}" for key in wanted if key.startswith(f"{section}.")}
        wanted |= inner or {f"machines[k].{section}"}
    assert wanted - keys_with_rows() == set()


def choices(section: type[Section], prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the words that each key takes besides its default: of its literals, or of its kind of policy."""
    found: dict[str, tuple[str, ...]] = {}
    for name, key in keys(section).items():
        inner = section_in(key.type)
        if inner is not None:
            found |= choices(inner, f"{prefix}{name}.")
            continue
        marks = [part for part in parts(key.type) if isinstance(part, Meta) and part.extra]
        words = [word for mark in marks for word in mark.extra["kind"].names]
        mapping = dict in map(get_origin, parts(key.type))
        words += [part for part in parts(key.type) if isinstance(part, str) and not mapping]
        words += ["true", "false"] if bool in parts(key.type) else []
        default = getattr(defaults(section), name)
        default = str(default).lower() if isinstance(default, bool) else default
        found[prefix + name] = tuple(word for word in dict.fromkeys(words) if word != default)
    return found


def test_every_choice_has_a_row():
    rows = [re.sub(r"^channels\.[\w-]+", "channels", row.assignment) for row in (*CHANGES, *REFUSALS)]
    rows = [re.sub(r"^fleet\.(plan|faults)=", r"fleet.\1.do=", row) for row in rows]
    missing = [
        f"{key}={word}"
        for key, words in choices(ScenarioModel, "").items()
        for word in words
        if not any(row == f"{key}={word}" or (row.startswith(f"{key}=[") and word in row) for row in rows)
    ]
    assert missing == []


def test_the_walk_sees_a_choice_and_a_policy():
    found = choices(ScenarioModel, "")
    assert found["fetch.lookup"] == ("cluster",)
    assert "selective" in found["write.policy"]
    assert found["channels.priority"] == ("loads-first",)
    assert found["cache.enabled"] == ("false",)


# --- the generators' own keys ------------------------------------------------------------------------------


def requests_of(kind: str, text: str) -> tuple[bytes, ...]:
    """Return the columns of a generated trace, to be compared."""
    trace = read_requests(load(f"workload={{kind: {kind}, requests: 80{text and ', '}{text}}}"))
    columns = (trace.arrival_ns, trace.think_ns, trace.input_tokens, trace.output_tokens, trace.block_ids)
    return (str(trace.block_size).encode(), *(column.tobytes() for column in columns))


KEYS = [(kind, field.name) for kind, made in KINDS.items() for field in dataclasses.fields(made)]


def test_every_key_of_a_generator_has_a_row():
    assert {key for _, key in KEYS} - {"prompt_structure"} == set(GENERATED)


@pytest.mark.parametrize(
    ("kind", "key"),
    [(kind, key) for kind, key in KEYS if key in GENERATED and (key != "tenants" or KINDS[kind]().shares)],
)
def test_every_key_of_a_generator_gives_other_requests(kind, key):
    value, needs = GENERATED[key]
    alongside = ", ".join(part for part in needs.split(", ") if part and not part.startswith(f"{key}:"))
    with_it = ", ".join(part for part in (f"{key}: {value}", alongside) if part)
    if key == "requests":
        made = requests_of(kind, "")
        assert len(made[1]) == 80 * 8
        assert len(read_requests(load(f"workload={{kind: {kind}, requests: 60}}"))) == 60
        return
    without = needs if key in ("concurrency", "summary_tokens") or key.startswith("subagent_") else ""
    assert requests_of(kind, with_it) != requests_of(kind, without)
