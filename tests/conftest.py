"""The profile of the property tests, the seed of new examples, and what the processes of tests inherit."""

import os
import secrets
import signal
import sys
from collections.abc import Iterator
from importlib import import_module

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


@pytest.fixture
def calls():
    """Replace functions by name, each with what it returns (a function: what that returns); list the calls.

    A class replaces what a name is. Afterwards each module that took a stand-in as it was first
    imported has the original, too.
    """
    log, originals = [], {}

    def stand_in(name, result):
        def called(*given, **named):
            log.append((name, *given, *named.items()))
            return result(*given, **named) if callable(result) else result

        return called

    def replace(**results):
        found = [f"kvcache_sim.{where.replace('__', '.')}".rpartition(".") for where in results]
        modules = [import_module(module) for module, _, _ in found]
        for module, (_, _, name), result in zip(modules, found, results.values(), strict=True):
            own = result if isinstance(result, type) else stand_in(name, result)
            originals[id(own)] = (
                own,
                originals.get(id(getattr(module, name)), (None, getattr(module, name)))[1],
            )
            setattr(module, name, own)
        return log

    yield replace
    for module in [module for name, module in sys.modules.items() if name.startswith("kvcache_sim")]:
        for name, value in [*vars(module).items()]:
            if id(value) in originals:
                setattr(module, name, originals[id(value)][1])
