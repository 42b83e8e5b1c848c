"""Where the shared traces, oracles and figures lie: beside the checkout, never inside it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def shared(name: str) -> Path:
    """Return the path of a shared file, or skip the test, saying so, where it is absent."""
    path = ROOT.parent / "shared" / name
    if not path.exists():
        pytest.skip(f"shared file absent: ../shared/{name}")
    return path
