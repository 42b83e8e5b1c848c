"""The profile of the property tests, the seed of new examples, and what the processes of tests inherit."""

import os
import secrets
import signal
from collections.abc import Iterator

# Before numpy is imported: two workers on two cores whose products each wait for two threads take many times longer.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis.internal.conjecture import engine
from support import examples
from support.setting_traces import folder  # noqa: F401  (a fixture)

# A shell that starts the suite in the background has it ignore Ctrl-C, and all processes that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

examples.register()
engine.MAX_SHRINKING_SECONDS = examples.SHRINKING_S  # five minutes otherwise, and no setting for it


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not examples.NEW_EXAMPLES:
        return
    # in the environment, where the workers of pytest-xdist find it
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ.setdefault("KVSIM_SEED", str(secrets.randbelow(10**9)))
    else:
        os.environ["KVSIM_SEED"] = str(config.option.hypothesis_seed)


@pytest.fixture(scope="module")
def no_whole_traces() -> Iterator[None]:
    """Every trace counts as long: it is read row by row where it can be."""
    from kvcache_sim.workload.readers import read

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read, "WHOLE_REFERENCES", -1)
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if examples.NEW_EXAMPLES:
        terminalreporter.write_line(
            f"tried again by: KVSIM_EXAMPLES={examples.NEW_EXAMPLES} KVSIM_SEED={os.environ['KVSIM_SEED']}"
        )
