"""Random streams that engines' own classes, from their wheels, were driven over: every figure of every row."""

from __future__ import annotations

import json

import pytest
from engine_oracles.recorded import CLASSES, drawn, short
from shared_files import shared

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
