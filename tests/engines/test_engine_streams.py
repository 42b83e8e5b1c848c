"""Random streams that engines' own classes, from their wheels, were driven over: every figure of every row."""

import json
import re

import pytest
from engine_oracles.__main__ import ENGINES, PROGRAMS
from engine_oracles.recorded import CLASSES, drawn, short
from support.shared_files import ROOT, shared

ROWS = json.loads(shared("oracles/engine_streams.json").read_text())


@pytest.mark.parametrize("name", CLASSES)
def test_every_stream(name):
    recorded = CLASSES[name]
    rows = [row for row in ROWS if row["class"] == name]
    assert [row["seed"] for row in rows] == list(range(recorded.streams))
    for row in rows:
        seed = row["seed"]
        assert drawn(recorded.request(seed).trace) == row["stream"], "another stream is drawn from its seed"
        ours = short(recorded.ours(seed))
        wrong = {
            figure: (ours[figure], theirs)
            for figure, theirs in row.items()
            if figure not in ("class", "seed", "stream") and ours[figure] != theirs
        }
        assert not wrong, f"stream {seed} (ours, theirs)"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_table_of_releases_has_every_driven_program(engine):
    """Each cell says how many streams are unequal, or why there are none; the first release is the modelled one."""
    text = (
        (ROOT / f"docs/understand/{engine}.md").read_text().partition("## Releases")[2].partition("\n## ")[0]
    )
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    (_, *releases, _), _, *rows = lines
    # lists of settings are compared without streams
    streams = [p for p in (*ENGINES, *PROGRAMS) if not p.name.endswith("settings")]
    driven = {p.name: p.wheel for p in streams if p.wheel.startswith(f"{engine}==")}
    assert [row[0] for row in rows] == list(driven)
    assert len(releases) == 3
    assert set(driven.values()) == {f"{engine}=={releases[0]}"}
    for name, *cells, rule in rows:
        assert all(re.fullmatch(r"[\d,]+ of [\d,]+|not there|not driven", cell) for cell in cells), name
        assert cells[0].startswith("0 of "), name
        assert rule or all(cell.startswith("0 of ") for cell in cells), name
