"""Plain command lines are read without typer: the same values as typer's, or none of a line that is not plain."""

import os
import subprocess
import sys
from functools import wraps
from inspect import signature
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.declared import Verb
from kvcache_sim.cli.simulate import app
from kvcache_sim.workload import readers
from support.product.scenarios import typer_app
from typer.main import get_command

WORDS = """-c --config --set -o --output --force --seed --policy --trace-format --on-bad-row --synthesise-prefixes
    --record --check --backend --step-every-iteration --engine --causes --prefixes --schedule-digests --fail-if
    --baseline --format --quiet -q --help -h -- --forc --set=a=1 -cq -qc --seed=3 - t.jsonl trace a.b=1 7 -7 007
    1_000 ٣ cheap full native json table skip --no-force all:0s..5s"""
OPTIONS = {
    "--seed": "7 x",
    "--check": "full x",
    "--backend": "native",
    "--engine": "spec x",
    "--format": "json brief",
    "--on-bad-row": "skip",
    "-c": "s.yaml -",
    "-o": "out",
    "--set": "a=1 b=2 -1",
}
PIECES = st.one_of(
    st.sampled_from([*WORDS.split(), "", "x y"]).map(lambda word: [word]),
    st.sampled_from(sorted(OPTIONS)).flatmap(
        lambda option: st.sampled_from(OPTIONS[option].split()).map(lambda value: [option, value])
    ),
    st.sampled_from(("--force", "-q", "--quiet", "t.jsonl")).map(lambda word: [word]),
)
LINES = st.lists(PIECES, max_size=5).map(lambda pieces: [word for piece in pieces for word in piece])


def typers(line):
    """Return what typer passes to the verb, None where it refuses the line or prints help."""
    passed = []
    verb = Verb(app.function)
    verb.function = record(passed)
    command = get_command(typer_app(verb))
    try:
        with command.make_context(
            "kvsim simulate", list(line), obj=["kvsim"], help_option_names=["-h", "--help"]
        ) as context:
            command.invoke(context)
    except Exception:
        return None
    return passed[0]


def record(passed):
    @wraps(app.function)
    def body(**values):
        passed.append(values)
        return 0

    return body


def whole(values):
    """Return a plain line's values with the defaults of the others, lists that were not given as typer's."""
    parameters = signature(app.function).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name != "command_line"}
    return {**defaults, **values}


@given(LINES)
def test_a_plain_line_means_what_typer_reads(line):
    mine = app.read(line)
    if mine is not None:
        theirs = typers(line)
        assert theirs is not None
        assert theirs.pop("command_line") == ["kvsim"]
        assert {name: value or None for name, value in whole(mine).items()} == {
            name: value or None for name, value in theirs.items()
        }


@pytest.mark.parametrize(
    "line",
    [
        "",
        "t.jsonl",
        "t.jsonl -c s.yaml --set a=1 --set b=2 -o out --force -q",
        "-c - --seed 7",
        "--format json -",
        "--on-bad-row skip --record all:0s..5s --check full --engine spec --fail-if a --fail-if b --baseline run",
        "--causes --prefixes --schedule-digests --step-every-iteration --synthesise-prefixes --policy lru",
    ],
)
def test_the_usual_lines_are_plain(line):
    assert app.read(line.split()) is not None


OTHERS = """--help; -h; a b; --seed x; --seed -7; --seed; --seed=7; -qc s.yaml; --format html; --force --force
    -c a -c b; --unknown; -- t.jsonl; --forc; trace trace; --seed ٣; --seed 1_0; -o --force; --set -1
    --fail-if --quiet; --seed 1234567890123456789"""


@pytest.mark.parametrize("line", OTHERS.replace("\n", ";").split(";"))
def test_other_lines_are_left_to_typer(line):
    assert app.read(line.split()) is None


#: Packages and modules that a plain run has no use for.
UNUSED = set(
    """
        typer click rich pydantic pydantic_core typing_extensions pyarrow pandas asyncio argparse
        difflib subprocess
    """.split()
)
#: Modules of formats of traces that a run of Mooncake's format has no use for.
OTHER_FORMATS = set(
    """
        agent_rows aiperf_dag aiperf_multi_turn aiperf_weka chained_text conversations csv_rows
        dynamo_agentic
    """.split()
)
TRACE = '{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'


@pytest.mark.parametrize("requests", ["generated", "of a trace"])
def test_a_plain_run_imports_what_it_uses(tmp_path, requests):
    (tmp_path / "t.jsonl").write_text(TRACE)
    generated = ["-c", "preset:one-gpu", "--set", "workload.requests=1"]
    line = ["simulate", *(generated if requests == "generated" else ["t.jsonl"]), "-o", "out", "-q"]
    script = (
        "import sys\nfrom kvcache_sim.cli.main import run\n"
        f"code = run({line})\n"
        "print(code, *sys.modules, file=sys.stderr)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    code, *modules = said.stderr.split()
    assert code == "0"
    assert {module.partition(".")[0] for module in modules} & UNUSED == set()
    formats = [
        name.rpartition(".")[2] for name in modules if name.startswith("kvcache_sim.workload.readers.")
    ]
    assert ("read" in formats) == (requests == "of a trace")
    other_formats = {path.stem for path in Path(readers.__file__).parent.glob("*.py")} & OTHER_FORMATS
    assert other_formats == OTHER_FORMATS
    assert not other_formats & set(formats)
    assert len([module for module in modules if module.startswith("kvcache_sim")]) <= (
        272 if requests == "generated" else 263
    )
