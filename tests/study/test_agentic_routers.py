"""The study of routers on agents: its rows are valid, its intervals closed forms, its tables have all rows."""

import json
import math
import sys

import pytest
import yaml
from kvcache_sim.scenario.load import scenario_from_text
from support.docs_data import figures_of, read_table
from support.shared_files import ROOT

sys.path.insert(0, str(ROOT / "benches"))
import agentic_routers
from agentic_routers import BATCHES, STUDY, T_19, compared


def test_intervals_by_hand():
    """A figure twice the base's in every batch has no spread; one odd batch of 20 has that of its logarithm."""
    base = [[[1.0]] * (BATCHES + 1)] * 3
    twice = [[[2.0]] * (BATCHES + 1), [[3.0]] * (BATCHES + 1), [[1.5]] * (BATCHES + 1)]
    assert compared(twice, base, 0) == pytest.approx([2, 2, 2, 1.5, 3])
    odd = [[[1.0]] * BATCHES + [[math.e]], *base[1:]]
    spread = T_19 * math.sqrt(19 * (1 / 20 - 1 / 400))
    assert compared(odd, base, 0) == pytest.approx([1, math.exp(-spread), math.exp(spread), 1, 1])


def test_every_row_is_a_scenario_and_has_a_row_in_both_tables(tmp_path):
    study = yaml.safe_load(STUDY.read_text())
    (tmp_path / "agents.jsonl").write_text(
        '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}\n'
    )
    for row in study["list"]:
        sets = [f"{key}={json.dumps(value)}" for key, value in row.items()]
        scenario_from_text(yaml.safe_dump(study["scenario"]), "s.yaml", tmp_path, sets)
    assert agentic_routers.BATCHES == 20
    for name in ("agentic-routers", "agentic-routers-open"):
        table = read_table(name)
        compared_with_default = table.rows[1 : len(study["list"])]
        assert len(table.rows) >= len(study["list"])
        for row in compared_with_default:
            for cell in row[1:]:
                ratio, low, high, least, most = figures_of(cell)
                assert low <= ratio <= high
                assert cell.startswith("= ") == (low <= 1 <= high or least <= 1 <= most) or 1 in (
                    low,
                    high,
                    least,
                    most,
                )
