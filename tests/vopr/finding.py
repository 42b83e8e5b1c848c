"""Findings of the simulation tester: what an oracle says against a case."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from kvcache_sim.base.errors import InvariantError, KvsimError, panics_as_errors


class Finding(Exception):
    """A broken oracle: its name, and the error that it raised."""

    def __init__(self, oracle: str, error: BaseException | str) -> None:
        kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
        super().__init__(f"{oracle}: {kind}{' '.join(str(error).split())[:600]}")
        #: Findings with equal keys are the same finding.
        self.key = oracle, kind, str(error)[:3] if isinstance(error, InvariantError) else ""


@contextmanager
def oracle(name: str, refusals: tuple[type[KvsimError], ...] = ()) -> Iterator[None]:
    """Turn each error of the block, and a panic of the core, into a finding, except ``refusals`` in one line."""
    try:
        with panics_as_errors():
            yield
    except Finding:
        raise
    except Exception as error:
        if isinstance(error, refusals) and not isinstance(error, InvariantError) and "\n" not in str(error):
            raise
        raise Finding(name, error) from error


class Kind(Protocol):
    """A kind of cases; the modules of this package have these functions."""

    def draw(self, seed: int) -> Any:
        """Return the case of a seed."""

    def run(self, case: Any, folder: Path) -> str:
        """Run a case in an empty folder and return how it ended in a word or two; raises Finding."""

    def smaller(self, case: Any) -> Iterator[Any]:
        """Yield smaller cases, the smallest first."""

    def shown(self, case: Any, folder: Path) -> str:
        """Return the line that runs a case again; its files are written into a folder."""
