"""A launch line as a commented scenario."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.launch.line import LaunchLine, parse_launch
from kvcache_sim.scenario.launch.model_name import model_of
from kvcache_sim.scenario.overrides import parse_path, set_value
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.scenario.yaml_tree import Tree, parse_value


def scenario_of_launch(text: str, gpu: str, model: str = "") -> str:
    """Return a launch line's scenario as YAML: what a scenario can say as settings, the rest as comments.

    ``model`` is the catalogue's name where the line's is not known. Raises UsageError for a line that is none
    of an engine, an unknown model, and a flag whose value cannot be.
    """
    line = parse_launch(text)
    tree = Tree()
    for key, value in line.engine.defaults.items():
        set_value(tree, parse_path(key, key), parse_value(value, key), key)
    left = _settings(line, tree)
    named = model or model_of(line.model)
    degree = line.flags.get(line.engine.tensor_parallel, "1")
    kv = tree.values.get("cache", {}).get("kv_dtype")
    options = [*([f"tp{degree}"] if degree != "1" else []), *([f"kv-{kv}"] if kv else [])]
    replica = tree.values.setdefault("replica", {})
    replica["step_time"] = f"roofline:{named}@{gpu}" + (f":{','.join(options)}" if options else "")
    tree.values["model"] = named
    head = [
        f"# Made from: {' '.join(text.split())}",
        f"# The GPU is not in the line: {gpu} (--gpu NAME). Run it with  kvsim simulate TRACE -c FILE",
        *(f"# not simulated: {flag} {value}".rstrip() for flag, value in left.items()),
    ]
    return "\n".join(head) + "\n" + to_yaml(tree.values)


def _settings(line: LaunchLine, tree: Tree) -> dict[str, str]:
    """Write the flags that are settings into the tree; return the others."""
    engine, left = line.engine, {}
    for flag, value in line.flags.items():
        if flag in engine.same:
            key, text = engine.same[flag], value
        elif flag in engine.sized:
            key, form = engine.sized[flag]
            text = form.format(value)
        elif flag in engine.switches:
            key, text = engine.switches[flag]
        elif flag in engine.words:
            key, words = engine.words[flag]
            if value not in words:
                raise UsageError("unknown value", where=flag, got=repr(value), expected=" | ".join(words))
            text = words[value]
        elif flag == engine.replicas:
            key, text = "cluster.machines", value
        else:
            if flag != engine.tensor_parallel:
                left[flag] = value
            continue
        if text:
            set_value(tree, parse_path(key, flag), parse_value(text, flag), flag)
        elif not value:
            raise UsageError("no value", where=flag)
    return left
