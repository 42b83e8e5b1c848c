"""Cells on a Ray cluster: Ray assigns them, and each node's own worker enforces the limits."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.addresses import address_of
from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Study, content_address
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.supervisor import CellRunner

#: Retries of a cell whose node or Ray worker was lost.
_NODE_LOSSES = 5
_GLANCE_S = 0.2
#: Longest time (s) until a port is open, and until Ray's own question of its health is answered.
_REACH_S, _HEALTH_S = 5, 20


class RayRunner:
    """Runs cells on Ray; see ``CellRunner`` in ``coordinator``.

    ``address`` is Ray's (``auto``, ``host:port``), or "" for a Ray of this machine alone with ``jobs`` cores.
    Input files travel once to each node, by content.
    """

    def __init__(self, address: str, jobs: int, limits: Limits) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UsageError("running on Ray needs the 'ray' extra", hint="pip install 'kvcache-sim[ray]'")
        self._address = address
        self._jobs = jobs
        self._limits = limits

    def run(self, study: Study, cells: Sequence[Cell], stop: StopRequest) -> Iterator[CellRecord]:
        """Yield the record of each cell as it ends; a lost node's cells run again elsewhere."""
        import ray

        started = not ray.is_initialized()
        if started:
            self._connect(ray)
        try:
            remote = ray.remote(max_retries=_NODE_LOSSES, num_cpus=1)(_run_on_node)
            shared = ray.put(_Shared(study, self._limits))
            contents = {path: ray.put(_read(path)) for path in study.files}
            ordered = sorted(cells, key=lambda cell: (-cell.work, cell.index))
            running = {remote.remote(cell, shared, contents): cell for cell in ordered}
            yield from self._collect(ray, running, stop)
        finally:
            if started:
                ray.shutdown()

    def _connect(self, ray: Any) -> None:
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
        try:
            local = {} if self._address else {"num_cpus": self._jobs, "include_dashboard": False}
            quiet = {"log_to_driver": False, "logging_level": "ERROR"}
            ray.init(address=self._address or "local", **local, **quiet, runtime_env=environment)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputOutputError(f"cannot reach Ray: {reason}", where=f"--on ray:{self._address}") from None

    def _collect(self, ray: Any, running: dict[Any, Cell], stop: StopRequest) -> Iterator[CellRecord]:
        gentle = False
        while running and stop.level < 2:
            if stop.level == 1 and not gentle:
                gentle = True
                for reference in running:  # cancel cells that wait for a core; running cells finish
                    ray.cancel(reference, force=False, recursive=False)
            ended, _ = ray.wait(list(running), timeout=_GLANCE_S)
            for reference in ended:
                cell = running.pop(reference)
                try:
                    yield ray.get(reference)
                except ray.exceptions.TaskCancelledError:
                    continue
                except ray.exceptions.RayError as error:
                    reason = " ".join(str(error).split())[:300]
                    yield CellRecord(cell.cell_id, "died", {}, f"lost on Ray: {reason}")
        for reference in running:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=True)


def refuse_unreachable(address: str) -> None:
    """Refuse what is no address (UsageError), and one where no Ray answers: Ray itself waits for ever."""
    if address in ("", "auto", "local"):
        return
    where, found = f"--on ray:{address}", address_of(address)
    if found is None or found.scheme not in ("", "ray") or not found.port:
        raise UsageError("no address of Ray", "--on", f"ray:{address}", "ray, ray:auto or ray:HOST:PORT")
    try:
        socket.create_connection((found.host, found.port), timeout=_REACH_S).close()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputOutputError(f"cannot reach Ray: {reason}", where=where) from None
    if found.scheme or importlib.util.find_spec("ray") is None:
        return
    ask = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--skip-version-check", "--address"]
    try:
        is_healthy = not subprocess.run([*ask, address], capture_output=True, timeout=_HEALTH_S).returncode
    except subprocess.TimeoutExpired:
        is_healthy = False
    if not is_healthy:
        raise InputOutputError(f"no Ray answers there within {_HEALTH_S} s", where=where)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputOutputError(f"cannot read: {error.strerror}", where=path) from None


class _Shared(NamedTuple):
    """The data that all cells share: sent once to each node."""

    study: Study
    limits: Limits


#: The worker of this process, with its study.
_KEPT: dict[str, CellRunner] = {}


def _run_on_node(cell: Cell, shared: _Shared, contents: Mapping[str, Any]) -> CellRecord:
    """Run a cell on this node in a worker that later cells reuse."""
    study, limits = shared
    key = content_address(asdict(study))
    if key not in _KEPT:
        for runner in _KEPT.values():
            runner.close()
        _KEPT.clear()
        _KEPT[key] = CellRunner(_placed(study, contents), limits)
        atexit.register(_KEPT[key].close)
    return _KEPT[key].run(cell)


def _placed(study: Study, contents: Mapping[str, Any]) -> Study:
    """Return the study with its input files on this node: at their own path, or by content in a folder."""
    import ray

    moved: dict[str, str] = {}
    for path, sha256 in study.files.items():
        if Path(path).exists():
            continue
        folder = Path(tempfile.gettempdir()) / f"kvsim-{os.getuid()}" / sha256
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / Path(path).name
        if not target.exists():
            temporary = folder / f".{os.getpid()}.tmp"
            temporary.write_bytes(ray.get(contents[path]))
            temporary.replace(target)
        moved[path] = str(target)
    return replace(study, moved=moved)
