"""Each key of the schema by ``--set`` alone: it changes a figure in the expected direction, or says why it cannot."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import get_args

import pytest
from kvcache_sim.errors import KvsimError
from kvcache_sim.metrics.names import flatten
from kvcache_sim.policies.plugins.choice import OneOf
from kvcache_sim.scenario.execute import summarized
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.measure import measured_requests
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.section import Checked, Section
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.generate.kinds import KINDS
from setting_effects import CHANGES, GENERATED, REFUSALS, Change, Refusal
from support.setting_traces import filled
from tiered_scenario import load

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
    return {"name": scenario.model.name, "prefetched_blocks": 0, **of_late_turns, **queued, **run.counters, **flatten(summary)}  # fmt: skip


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
    for section in MachineSection.model_fields:
        inner = {f"machines[k].{key}" for key in wanted if key.startswith(f"{section}.")}
        wanted |= inner or {f"machines[k].{section}"}
    assert wanted - keys_with_rows() == set()


def choices(section: type[Section], prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the words that each key takes besides its default: of its literals, or of its kind of policy."""
    found: dict[str, tuple[str, ...]] = {}
    for name, field in section.model_fields.items():
        named = [getattr(a, "__origin__", a) for a in get_args(field.annotation)]
        inner = [a for a in (field.annotation, *named) if isinstance(a, type)]
        inner = [a for a in inner if issubclass(a, Section)]
        if inner:
            found |= choices(inner[0], f"{prefix}{name}.")
            continue
        words: list[str] = []
        for part in (field, *get_args(field.annotation)):
            checks = getattr(part, "metadata", None) or getattr(part, "__metadata__", ())
            words += [
                w
                for c in checks
                if isinstance(c, Checked) and isinstance(c.func, OneOf)
                for w in c.func.kind.names
            ]
            words += [part] if isinstance(part, str) else [w for w in get_args(part) if isinstance(w, str)]
        words += ["true", "false"] if field.annotation is bool else []
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        found[prefix + name] = tuple(w for w in dict.fromkeys(words) if w != default)
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
    beside = ", ".join(part for part in needs.split(", ") if part and not part.startswith(f"{key}:"))
    with_it = ", ".join(part for part in (f"{key}: {value}", beside) if part)
    if key == "requests":
        made = requests_of(kind, "")
        assert len(made[1]) == 80 * 8
        assert len(read_requests(load(f"workload={{kind: {kind}, requests: 60}}"))) == 60
        return
    without = needs if key in ("concurrency", "summary_tokens") or key.startswith("subagent_") else ""
    assert requests_of(kind, with_it) != requests_of(kind, without)
