"""Refuse to measure a debug build, whose figures mean nothing."""

from __future__ import annotations

import pytest
from kvcache_sim import _core


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _core.__release__:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="a debug build of the core: `make build` first"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures that a benchmark derived from its time: a rate, a size."""
    measured = getattr(config, "_benchmarksession", None)
    for one in measured.benchmarks if measured else ():
        if one.extra_info:
            figures = "  ".join(f"{value:,} {name}" for name, value in one.extra_info.items())
            terminalreporter.write_line(f"{one.name:<44} {figures}")
