"""``kvsim help schema``: every key is in it, and it takes the scenarios that we take."""

import json
from pathlib import Path

import pytest
from kvcache_sim.cli import main
from kvcache_sim.scenario.json_schema import json_schema
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.yaml_tree import read_tree

SCHEMA = json_schema()
SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


def arms(schema):
    """Yield a schema's objects, references followed and unions opened."""
    if "$ref" in schema:
        yield from arms(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    elif "anyOf" in schema:
        for arm in schema["anyOf"]:
            yield from arms(arm)
    else:
        yield schema


def entry(schema, step):
    """Return the schema of one key; None where a schema has no such key."""
    for arm in arms(schema):
        if step in arm.get("properties", {}):
            return arm["properties"][step]
        if step == "NAME" and isinstance(arm.get("additionalProperties"), dict):
            return arm["additionalProperties"]
    return None


@pytest.mark.parametrize("line", key_lines(), ids=lambda line: line.split()[0])
def test_every_key_is_in_the_schema_with_its_meaning_and_default(line):
    own = SCHEMA
    path, default = line.split()[:2]
    for step in path.split("."):
        own = entry(own, step)
        assert own is not None, path
    if "description" in own:
        assert line.endswith(own["description"])
    if isinstance(own.get("default"), str):
        assert default == own["default"]


def wrong(schema, value, path="$"):
    """Return the paths of a value that a schema does not take: its types, choices, limits and keys."""
    found = [_wrong(arm, value, path) for arm in arms(schema)]
    return min(found, key=len)


KINDS = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _wrong(schema, value, path):
    kind = schema.get("type")
    if kind == "null":
        return [] if value is None else [path]
    if kind and (not isinstance(value, KINDS[kind]) or (kind != "boolean" and value is True)):
        return [path]
    if value not in schema.get("enum", [value]):
        return [path]
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        return [] if low <= value <= high else [path]
    if isinstance(value, list):
        return [one for item in value for one in wrong(schema.get("items", {}), item, f"{path}[]")]
    if isinstance(value, dict):
        lacking = [f"{path}.{key} is missing" for key in schema.get("required", []) if key not in value]
        rest = schema.get("additionalProperties", True)
        known = schema.get("properties", {})
        for key, own in value.items():
            inner = known.get(key, rest)
            if inner is False:
                lacking.append(f"{path}.{key} is unknown")
            elif inner is not True:
                lacking += wrong(inner, own, f"{path}.{key}")
        return lacking
    return []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_packaged_scenarios_are_taken(path):
    assert wrong(SCHEMA, read_tree(path.read_bytes(), path.name).values) == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("cach: {}", "$.cach is unknown"),
        ("machines: [{tiers: {cpx: 1}}]", "$.machines[].tiers.cpx is unknown"),
        ("cache: {block_size: 0}", "$.cache.block_size"),
        ("cache: {lookup_time: 3}", "$.cache.lookup_time"),
        ("channels: {a: {sharing: both}}", "$.channels.a.sharing"),
        ("slo: {classes: {a: {ttft: 1s}}}", "$.slo.classes.a.when is missing"),
        ("workload: {kind: nothing}", "$.workload.kind"),
    ],
)
def test_what_we_refuse_is_refused(text, where):
    assert wrong(SCHEMA, read_tree(text.encode(), "s.yaml").values) == [where]


def test_the_help_page_is_the_schema(capsys):
    assert main.run(["help", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
