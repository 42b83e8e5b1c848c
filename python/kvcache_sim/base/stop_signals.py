"""Signals that end a command."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM, and SIGHUP unless this process ignores it, as under ``nohup``."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *[signal.SIGHUP] * hangs_up)


def exit_code_of(number: int) -> int:
    """Return the exit code of a command that a signal ended, as shells count it."""
    return 128 + number
