"""What the tests of studies share: their worker processes import ``support``."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
