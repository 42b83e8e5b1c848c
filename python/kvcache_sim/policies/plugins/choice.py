"""A policy by name: a row of its kind's registry, or a user's class with every answer checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from time import perf_counter_ns
from typing import Any

from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.values import Value

#: Checks an answer and returns it in the form used. Arguments: the answer, the arguments of the call, the
#: arguments of the constructor. Raises ValueError with the expected answer.
Answer = Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any]


class Kind(Value, eq=False):
    """One kind of policy: its printed name, its built-in rows, and the methods of a plug-in.

    A plug-in is ``file.py:Name`` or ``pkg.mod:Name``, optionally followed by keyword arguments, or the name
    of an entry point of ``group``. Its constructor receives the same arguments as the registry's rows.
    """

    what: str
    group: str
    registry: Mapping[str, Callable[..., Any]]
    #: Each method with the check of its answers.
    answers: Mapping[str, Answer]
    #: Attributes that are read after construction.
    attributes: tuple[str, ...] = ()
    #: A name without a row that means no policy.
    none: str = ""
    #: Names of policies implemented in the core; they have no row.
    in_core: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The built-in names."""
        built_in = (*self.registry, *self.in_core)
        return (self.none, *built_in) if self.none else built_in

    def offered(self) -> list[str]:
        """Return the names that installed packages provide, sorted. Cost: reads every package's metadata."""
        from importlib.metadata import entry_points

        return sorted(point.name for point in entry_points(group=self.group))

    def refuse_unknown(self, name: str) -> None:
        """Raise UsageError for a name that is not built in, not ``file.py:Name`` and not an entry point."""
        if name in self.names or ":" in name or name in self.offered():
            return
        close = close_matches(name, self.names, n=1, cutoff=0.5)
        raise UsageError(
            f"no such {self.what}",
            got=repr(name),
            expected=f"one of {', '.join(self.names)}, or file.py:Name",
            hint=f"did you mean {close[0]!r}?" if close else "",
        )

    def maker(self, name: str) -> Callable[..., Any]:
        """Return the constructor of a policy by name; a plug-in is imported and checked.

        Raises UsageError naming the problem: an unknown name, a failing import, a missing method.
        """
        if name in self.registry:
            return self.registry[name]
        self.refuse_unknown(name)
        from kvcache_sim.policies.plugins.load import load_plugin

        plugin = load_plugin(name, self.group)
        target = plugin.target
        if not callable(target):
            raise UsageError(f"not a {self.what}: no class or function", got=repr(name))
        for method in self.answers:
            if isinstance(target, type) and not callable(getattr(target, method, None)):
                raise UsageError(f"not a {self.what}: it has no {method}", got=repr(name))

        def make(*arguments: Any) -> Guarded:
            from kvcache_sim.policies.plugins.watchdog import watched

            try:
                with watched(name):
                    policy = target(*arguments, **plugin.arguments)
            except KvsimError:
                raise
            except (Exception, SystemExit) as error:
                raise UsageError(
                    f"cannot be made: {type(error).__name__}: {error}", where=f"{self.what} {name}"
                ) from None
            return Guarded(self, name, policy, arguments)

        return make

    def make(self, name: str, *arguments: Any) -> Any:
        """Return a new policy by name, constructed with the arguments of the registry's rows."""
        return self.maker(name)(*arguments)


class Guarded:
    """A plug-in with every answer checked; it has the methods and attributes of its kind."""

    def __init__(self, kind: Kind, name: str, policy: Any, made_with: tuple[Any, ...]) -> None:
        from kvcache_sim.policies.plugins.uses import note_use

        self._kind, self._name, self._policy, self._made_with = kind, name, policy, made_with
        self._use = note_use(kind.what, name)
        for attribute in kind.attributes:
            if not hasattr(policy, attribute):
                raise UsageError(f"not a {kind.what}: it has no {attribute}", got=repr(name))
            setattr(self, attribute, getattr(policy, attribute))
        for method, answer in kind.answers.items():
            if not callable(getattr(policy, method, None)):
                raise UsageError(f"not a {kind.what}: it has no {method}", got=repr(name))
            setattr(self, method, self._guard(method, answer))

    def _guard(self, method: str, answer: Answer) -> Callable[..., Any]:
        from traceback import extract_tb

        from kvcache_sim.policies.plugins.contract import PolicyViolation
        from kvcache_sim.policies.plugins.watchdog import Watchdog, duty, watching

        ask, name, use = getattr(self._policy, method), self._name, self._use
        where = f"{self._kind.what} {name}"

        def asked(*arguments: Any) -> Any:
            dog = duty.dog
            if dog is None:  # outside a run
                with watching(Watchdog()):
                    return asked(*arguments)
            if not dog.watches:
                dog.start()
            outer, dog.asked = dog.asked, name
            dog.calls += 1
            started_ns = perf_counter_ns()
            try:
                given = ask(*arguments)
            except KvsimError:
                raise
            except (Exception, SystemExit) as error:
                line = extract_tb(error.__traceback__)[-1]
                location = f"{line.filename}:{line.lineno}"
                what = f"{method} raised {type(error).__name__}: {error}"
                raise PolicyViolation(what, where=where, got=location) from None
            finally:
                use.ns += perf_counter_ns() - started_ns
                use.calls += 1
                dog.asked = outer
            try:
                return answer(given, arguments, self._made_with)
            except ValueError as wrong:
                got = repr(given)
                got = got if len(got) <= 60 else got[:57] + "..."
                raise PolicyViolation(
                    f"{method} gave no usable answer", where=where, got=got, expected=str(wrong)
                ) from None

        return asked


def whole_number(given: Any, least: int, most: int) -> int:
    """Return an answer as an int; ValueError gives the expected range."""
    if type(given) is int or (isinstance(given, Integral) and given is not True and given is not False):
        number = int(given)
        if least <= number <= most:
            return number
    raise ValueError(f"a whole number from {least} to {most}")
