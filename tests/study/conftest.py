"""Worker processes of a study import ``support``, as its tests do."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
