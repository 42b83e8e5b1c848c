"""The entry point: finds the verb, runs it, and turns every error into one line and an exit code."""

from __future__ import annotations


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    del argv
    return 0
