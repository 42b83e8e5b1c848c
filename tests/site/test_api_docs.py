"""Docstrings and short forms of the Python API, one name at a time."""

import inspect
import re
from typing import Any

import kvcache_sim as kv
import pytest
from support.agent_logs import plan, play

CLASSES = [name for name in kv.__all__ if inspect.isclass(getattr(kv, name))]
FUNCTIONS = [name for name in kv.__all__ if not inspect.isclass(getattr(kv, name))]
#: Sections of a Google-style docstring.
SECTIONS = ("Args", "Attributes", "Returns", "Raises")
#: A unit, a shape, or the kind of value, in the description of an array or a number.
ARRAY = r"\((?:n|n \+ 1|references|distinct|pairs, 2),?\)"


def sections(doc: str) -> dict[str, dict[str, str]]:
    """Return the entries of each section of a docstring, by name."""
    found: dict[str, dict[str, str]] = {}
    for section in SECTIONS:
        body = re.search(rf"^{section}:\n((?:    .*\n?|\n)+)", doc + "\n", re.M)
        if body:
            entries = re.split(r"^    (?=[*\w])", body[1], flags=re.M)[1:]
            named = [re.match(r"[*]*(\w+): (.*)", one, re.S) for one in entries]
            found[section] = {one[1]: " ".join(one[2].split()) for one in named if one} or {
                "": body[1].strip()
            }
    return found


def doc_of(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def parameters(thing: Any) -> list[str]:
    """Return the names that a caller may pass."""
    own = inspect.signature(thing).parameters
    return [name for name in own if name not in ("self", "cls") and not name.startswith("_")]


def methods(name: str) -> list[tuple[str, Any]]:
    """Return the public methods that a class defines itself or inherits from this package, without properties."""
    found = inspect.getmembers(
        getattr(kv, name), lambda one: inspect.isfunction(one) or inspect.ismethod(one)
    )
    return [
        (own, one)
        for own, one in found
        if not own.startswith("_") and one.__module__.startswith("kvcache_sim")
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_documents_every_parameter_its_result_and_its_errors(name: str) -> None:
    doc = sections(doc_of(getattr(kv, name)))
    assert list(doc["Args"]) == parameters(getattr(kv, name))
    assert doc["Returns"]
    assert {"UsageError", "TraceError"} & set(doc["Raises"])
    assert set(doc["Raises"]) <= {error for error in kv.__all__ if error.endswith("Error")}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_documents_what_it_is_made_of(name: str) -> None:
    of = getattr(kv, name)
    doc = sections(doc_of(of))
    made_of = getattr(of, "__match_args__", ()) or tuple(getattr(of, "__dataclass_fields__", ()))
    fields = [one for one in made_of if one in inspect.get_annotations(of)]  # an error's subclass adds none
    if fields:
        assert list(doc["Attributes"])[: len(fields)] == fields
    elif name in ("Scenario",):
        assert doc["Args"]
    else:
        assert doc["Attributes"]


def test_columns_state_their_shape_and_times_their_unit() -> None:
    said = sections(doc_of(kv.Trace))["Attributes"]
    hints = inspect.get_annotations(kv.Trace)
    for name, text in said.items():
        assert ("NDArray" not in str(hints[name])) or re.match(ARRAY, text), name
        assert not name.endswith("_ns") or " ns" in text, name
    options = sections(doc_of(kv.RunOptions))["Attributes"]
    assert all(" ns" in text for name, text in options.items() if name.endswith("_ns"))


@pytest.mark.parametrize("name", CLASSES)
def test_a_method_documents_its_parameters(name: str) -> None:
    for own, method in methods(name):
        doc = sections(doc_of(method))
        taken = parameters(method)
        assert not taken or list(doc.get("Args", {})) == taken, f"{name}.{own}"
        assert doc_of(method), f"{name}.{own}"
    for own, one in inspect.getmembers(getattr(kv, name), lambda one: isinstance(one, property)):
        assert own.startswith("_") or doc_of(one), f"{name}.{own}"


# -- short forms


@pytest.fixture(scope="module")
def objects(tmp_path_factory) -> dict[str, Any]:
    """Return an object of each class of the API."""
    trace = kv.generate("conversational", requests=60)
    run = kv.simulate(trace, tiers={"gpu": "96 blocks", "cpu": "8GiB"})
    made = [
        *(trace, run, kv.Scenario(), kv.RunOptions(), kv.curve(trace), kv.cachesim(trace, capacity=64)),
        *(kv.explain(run), kv.compare(run, run), run.plot("queue"), kv.sweep(trace, grid={"seed": [1, 2]})),
        kv.capacity(trace, slo={"ttft": "2s"}),
        kv.optimize(trace, space={"seed": [1, 2]}, minimize="ttft.p99", trials=2),
        kv.command("help exit-codes"),
        kv.session(play(plan(1, calls=6)).write(tmp_path_factory.mktemp("log"))),
    ]
    errors = [getattr(kv, name)("what", "where") for name in CLASSES if name.endswith("Error")]
    return {type(one).__name__: one for one in (*made, *errors)}


def test_every_class_has_a_short_form(objects: dict[str, Any]) -> None:
    assert set(objects) == set(CLASSES)
    for name, one in objects.items():
        assert name in repr(one) or name in type(one).__name__, name
        lines = repr(one).splitlines()
        assert len(lines) <= 3, name
        assert all(len(line) <= 400 for line in lines), name
        assert "object at 0x" not in repr(one), name


def test_a_trace_and_a_run_say_what_they_hold(objects: dict[str, Any], tmp_path) -> None:
    trace = objects["Trace"]
    said = repr(trace)
    assert f"{len(trace):,} requests, {trace.distinct_ids:,} blocks of 512 tokens" in said
    assert f"{int(trace.input_tokens.sum()):,} input" in said
    assert "warning" not in repr(objects["Run"])
    file = tmp_path / "lengths.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,1396,109\n"
    )
    noted = kv.simulate(file)
    counted = f"{len(noted.warnings)} warnings, the first" if len(noted.warnings) > 1 else "1 warning"
    assert repr(noted).splitlines()[-1] == f"  {counted}: {noted.warnings[0]}>"
    assert f"<Trace {file}: 2 requests" in repr(kv.read_trace(file))
