"""A plug-in that breaks its contract ends the command in one line that names it, with its exit code."""

import numpy as np
import pytest
from kvcache_sim.base.errors import EXIT_INTERNAL, EXIT_USAGE, UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.policies.plugins import watchdog
from kvcache_sim.policies.plugins.choice import whole_number
from kvcache_sim.policies.plugins.open import open_policy
from support.tiered_scenario import BASE

RAILS = """
channels:
  left: {bandwidth: 1GB/s, edges: [cpu->gpu]}
  right: {bandwidth: 1GB/s, edges: [cpu->gpu]}
"""
POLICY = """
class P:
    def __init__(self, tier):
        self.known = {{}}
    def on_insert(self, b, now):
        self.known[b.id] = b
    def on_hit(self, b, now):
        pass
    def free(self, pinned):
        return sorted((k for k in self.known if k not in pinned), key=lambda k: -self.known[k].depth)
    def victims(self, n, now, pinned):
        {victims}
    def on_remove(self, b, now):
        del self.known[b.id]
"""
#: By what is wrong: the file of an eviction policy P, and a word of the line.
EVICTION = {
    "import error": ("import no_such_module_at_all", "no_such_module_at_all"),
    "raises at import": ("1 / 0", "ZeroDivisionError"),
    "syntax error": ("class P(:\n  pass", "syntax error"),
    "no such name": ("x = 1", "no P"),
    "not callable": ("P = 5", "neither"),
    "hooks missing": ("class P:\n    def __init__(self, tier): pass", "on_insert"),
    "wrong constructor": (
        "class P:\n    on_insert = on_hit = victims = on_remove = lambda *a: None",
        "cannot be called",
    ),
    "wrong signature": ("def P(b): return 0", "cannot be called"),
    "unordered keys": ("def P(b, now): return None if b.id % 2 else 1", "TypeError"),
    "changes the view": ("def P(b, now):\n    b.hits = 0\n    return 0", "read-only"),
    "random": ("import random\ndef P(b, now): return random.random()", "deterministic"),
}
#: By what is wrong: what is returned as the victims.
VICTIMS = {
    "pinned": ("[k for k in self.known if k in pinned][:n] or list(self.known)[:n]", "held"),
    "not resident": ("list(range(10**9, 10**9 + n))", "not resident"),
    "too few": ("[]", "asked"),
    "not a list": ("7", "not a list"),
    "parent first": ("self.free(pinned)[::-1][:n]", "child"),
    "twice the same": ("self.free(pinned)[:1] * n", "twice"),
    "another at each call": (
        "(setattr(self, 'i', getattr(self, 'i', 0) + 1), self.free(pinned)[self.i % 2 :][:n])[1]",
        "twice",
    ),
}


@pytest.fixture
def bad(tmp_path):
    """Write a file with a plug-in and return its name."""

    def written(text: str) -> str:
        (tmp_path / "bad.py").write_text(text)
        return f"{tmp_path}/bad.py:P"

    return written


def line_of(capsys, name: str) -> str:
    """Return the one line of an error."""
    error = capsys.readouterr().err.removeprefix(f"plug-in: {name}\n")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    return error


@pytest.mark.parametrize("case", [*EVICTION, *VICTIMS])
def test_a_broken_eviction_policy_is_named(bad, capsys, case):
    text, word = EVICTION.get(case) or (POLICY.format(victims=f"return {VICTIMS[case][0]}"), VICTIMS[case][1])
    name = bad(text)
    code = EXIT_INTERNAL if case == "parent first" else EXIT_USAGE
    assert kvsim(["policies", "check", name]) == code
    assert word in line_of(capsys, name)


@pytest.fixture
def impatient(monkeypatch):
    """Wait a third of a second for a plug-in, instead of ten."""
    for watch in (watchdog.watched, watchdog.watching):
        monkeypatch.setattr(watch.__wrapped__, "__defaults__", (0.3,))


@pytest.mark.parametrize(
    ("breaks", "word"),
    [
        ("return [k for k in self.known if k in pinned][:n]", "held"),
        ("raise ValueError('oops')", "ValueError: oops"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("while True: pass", "did not return"),
    ],
)
def test_a_promise_broken_later_ends_the_replay_with_its_time(bad, impatient, tmp_path, capsys, breaks, word):
    later = f"if now > 300:\n            {breaks}\n        return self.free(pinned)[:n]"
    name = bad(POLICY.format(victims=later))
    row = '{{"timestamp": {}, "input_length": 32, "output_length": 1, "hash_ids": [0, {}]}}\n'
    (tmp_path / "t.jsonl").write_text("".join(row.format(7 * k, k + 1) for k in range(350)))
    asked = ["cachesim", str(tmp_path / "t.jsonl"), "--trace-block-size=16", "--capacity=20"]
    assert kvsim([*asked, "--last-partial=keep", f"--policy={name}"]) == EXIT_INTERNAL
    line = line_of(capsys, name)
    assert "policy P" in line
    assert word in line
    if word != "did not return":
        assert f"at {7 * 300 * 10**6} ns" in line


def test_an_import_that_never_ends_is_named(bad, impatient):
    with pytest.raises(UsageError, match="did not return"):
        open_policy(bad("while True: pass\n"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".:x", "names no policy"),
        ("bad.py:", "names no policy"),
        ("a..b:c", "names no policy"),
        ("sglang:lruu", "sglang:lru"),
        ("no_such_module:x", "no_such_module"),
        ("vllm:json:dumps", "CachePolicy"),
        ("lfru", "no such policy"),
        ("goode.py:Lru", "good.py"),
    ],
)
def test_a_name_that_names_nothing_is_refused_with_what_is_near(name, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text("")
    assert kvsim(["policies", "check", name]) == EXIT_USAGE
    assert words in line_of(capsys, name)


FETCH = "class P:\n  def reuse(self, plan): "
WRITE = (
    "class P:\n  writes_back = at_commit = delays_step = False\n  def __init__(self, upper, settings): pass\n"
    "  committed = arrived = lambda self, *a: None\n  def used(self, *a): return 'x'"
)
#: By what is wrong: the key of a plug-in of another kind, its file, and a word of the line.
REFUSED = {
    "does not import": ("fetch.policy", "import no_such_module", "no_such_module"),
    "syntax error": ("write.policy", "class P(:", "syntax error"),
    "no such name": ("prefetch.policy", "x = 1", "no P"),
    "no method": ("router.policy", "class P: pass", "choose"),
    "no attribute": ("prefetch.policy", "class P:\n  def blocks(self, c): return 0", "occasions"),
    "constructor": ("fetch.policy", f"{FETCH}return 0\n  def __init__(self, a): pass", "made"),
}
BROKEN = {
    "no number": ("fetch.policy", f"{FETCH}return 'all'", "reuse"),
    "too much": ("fetch.policy", f"{FETCH}return plan.end + 1", "whole number"),
    "no machine": (
        "router.policy",
        "class P:\n  def __init__(self, v): pass\n  def choose(self, s): return 2",
        "0 to 1",
    ),
    "no tuple": ("replica.queue_order", "class P:\n  def key(self, w): return float('nan')", "tuple"),
    "a flag": (
        "prefetch.policy",
        "class P:\n  occasions = ('queued',)\n  def blocks(self, c): return True",
        "whole number",
    ),
    "no channel": ("channel_choice", "class P:\n  def choose(self, s, c): return 'up'", "channels"),
    "raises": ("fetch.policy", f"{FETCH}return 1 // 0", "ZeroDivisionError"),
    "no move": ("write.policy", WRITE, "move"),
    "never returns": ("fetch.policy", f"{FETCH}\n    while True: pass", "did not return"),
    "is never made": (
        "router.policy",
        "class P:\n  def __init__(self, v):\n    while True: pass\n  def choose(self, s): return 0",
        "did not return",
    ),
}


@pytest.mark.parametrize("case", [*REFUSED, *BROKEN])
def test_a_broken_plug_in_of_another_kind_is_one_line_and_an_exit_code(
    bad, impatient, case, tmp_path, capsys
):
    key, text, word = REFUSED.get(case) or BROKEN[case]
    name = bad(text)
    (tmp_path / "s.yaml").write_text(BASE + (RAILS if key == "channel_choice" else ""))
    arguments = ["-c", str(tmp_path / "s.yaml"), "--set", f"{key}={name}", "-o", str(tmp_path / "out")]
    assert kvsim(["simulate", *arguments]) == (EXIT_USAGE if case in REFUSED else EXIT_INTERNAL)
    line = line_of(capsys, name)
    assert word in line
    assert "bad.py" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [2, 5, np.int64(3), np.uint8(5)], ids=repr)
def test_an_answer_is_a_whole_number_of_any_kind(given):
    found = whole_number(given, 2, 5)
    assert (type(found), found) == (int, given)


@pytest.mark.parametrize("given", [-1, 6, np.int64(6), True, False, np.bool_(True), 3.0, "3", None], ids=repr)
def test_other_answers_are_refused(given):
    with pytest.raises(ValueError, match="whole number"):
        whole_number(given, 0, 5)
