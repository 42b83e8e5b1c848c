"""Launch lines of YAML documents: Compose, Kubernetes manifests, charts' values, KServe, Dynamo's graphs.

A document is searched for containers, that is mappings with a command or arguments. What stands around one
counts for it: replicas, variables, a role, an image, the degrees that an operator adds to the command.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.echo import shown
from kvcache_sim.scenario.launch.line import LaunchLine, Surroundings, lines_of_shell
from kvcache_sim.scenario.launch.named_files import options_of
from kvcache_sim.scenario.launch.shell_words import WHERE
from kvcache_sim.scenario.launch.starts import router_of
from kvcache_sim.scenario.yaml_tree import read_tree

_DOCUMENT = re.compile(r"^---[^\n]*$", re.M)
_LOOKS = re.compile(r"(?:\s*#[^\n]*\n|\s*\n|---[^\n]*\n)*[ \t]*(?:- )?[\"']?[A-Za-z_][\w./-]*[\"']?:(?:\s|$)")
_TEMPLATE = re.compile(r"\{\{-?\s*[\w.$\"(]")
_COMMAND = ("entrypoint", "command", "args", "commands", "run", "setup_and_run")
_ROLES = {"prefill": r"prefill", "decode": r"decod"}
#: Degrees that operators add to the engine's command, and vLLM's flags for them.
_DEGREES = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
}
_MOST_DOCUMENTS, _MOST_WORKERS = 200, 64
#: Keys of a mapping whose own key is a name, and names that say nothing.
_NAMED = ("image", "replicas", "componentType", *_COMMAND)
_UNNAMED = ("main", "mainContainer", "items", "spec", "template")
_EXTRA = "VLLM_ADDITIONAL_ARGS"


@dataclass(frozen=True, slots=True)
class Worker:
    """One launch line of a text, its role ("both", "prefill" or "decode") and the machines that run it."""

    line: LaunchLine
    role: str = "both"
    replicas: int = 1
    name: str = ""


@dataclass
class Documents:
    """The workers of documents, the router in front of them, and containers in which no engine starts."""

    workers: list[Worker] = field(default_factory=list)
    router: str = ""
    aside: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Around:
    """Settings of the mappings around a container."""

    name: str = ""
    role: str = ""
    replicas: int = 1
    image: str = ""
    model: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    usual: tuple[str, ...] = ()


def is_document(text: str) -> bool:
    """Return True if a text is YAML: its first line is a key."""
    return _LOOKS.match(text) is not None


def read_documents(text: str, model: str = "") -> Documents:
    """Return the workers of YAML documents. Raises UsageError for YAML that is none, and for a template."""
    if found := _TEMPLATE.search(text):
        hint = "render it first: helm template NAME CHART -f values.yaml | kvsim init --from -"
        got = repr(shown(text[found.start() : found.start() + 40]))
        raise UsageError("a template that is not rendered", WHERE, got, hint=hint)
    values = []
    parts = _DOCUMENT.split(text)
    if len(parts) > _MOST_DOCUMENTS:
        raise UsageError("too many documents", WHERE, f"{len(parts):,}", f"at most {_MOST_DOCUMENTS}")
    for part in parts:
        body = textwrap.dedent(part)
        if body.lstrip().startswith("- "):
            body = f"items:\n{body}"
        values.append(read_tree(body.encode(), WHERE).values)
    reader = _Documents(model, _files(values))
    for value in values:
        reader.walk(value, _Around())
    return reader.found


def _files(values: list[dict[str, Any]]) -> dict[str, str]:
    """Return the files of config maps."""
    maps = [value.get("data") for value in values if value.get("kind") == "ConfigMap"]
    return {name: str(text) for one in maps if isinstance(one, dict) for name, text in one.items()}


class _Documents:
    """The workers that were found so far."""

    def __init__(self, model: str, files: Mapping[str, str]) -> None:
        self.model, self.files, self.found = model, files, Documents()

    def walk(self, value: Any, around: _Around, key: str = "") -> None:
        """Find the containers in a value; ``key`` names it."""
        if isinstance(value, list):
            for one in value:
                self.walk(one, around)
        if not isinstance(value, dict):
            return
        around = _entered(value, around, key)
        self._read_router(value)
        if "modelURL" in value:
            self._read_stack(value, around)
            return
        if any(_is_command(value.get(name)) for name in _COMMAND) or "modelCommand" in value:
            self._read_container(value, around)
        elif _EXTRA in around.environment and "containers" not in value and "name" in value:
            environment = dict(around.environment)
            script = f"vllm serve {environment.pop(_EXTRA)}"
            around = replace(around, environment=environment)
            self._add(lines_of_shell(script, self._surroundings(around), self.model or around.model), around)
            return
        has_prefill = isinstance(value.get("prefill"), dict)
        for name, one in value.items():
            if name in ("env", "environment", "envs", "metadata", "data", "initContainers", "labels"):
                continue
            role = name if name in _ROLES else "decode" if has_prefill and name != "router" else ""
            self.walk(one, replace(around, role=role or around.role), str(name))

    def _read_router(self, value: Mapping[str, Any]) -> None:
        name = value.get("routingLogic")
        words = value.get("args")
        if isinstance(words, list):
            listed = [str(word) for word in words]
            for flag in ("--router-mode", "--routing-logic", "--policy"):
                if flag in listed[:-1]:
                    name = listed[listed.index(flag) + 1]
        self.found.router = router_of(name) or self.found.router

    def _read_container(self, value: Mapping[str, Any], around: _Around) -> None:
        words, script = _words(value, around.environment)
        base = ["vllm", "serve"] if value.get("modelCommand") == "vllmServe" else []
        if around.image and not base:
            base = [around.image]
        surroundings = self._surroundings(around)
        model = self.model or around.model
        lines = lines_of_shell(script, surroundings, model) if script else []
        if not lines:
            text = shlex.join([*base, *words]) if not script else f"{shlex.join(base)} {script}"
            lines = lines_of_shell(text, surroundings, model)
        if not lines and not around.image and words and (words[0].startswith("-") or "/" in words[0]):
            lines = lines_of_shell(shlex.join([_engine(words), "serve", *words]), surroundings, model)
        self._add(lines, around)
        if not lines:
            self.found.aside.append(f"{around.name}: {' '.join(words) or script}")

    def _surroundings(self, around: _Around) -> Surroundings:
        image = (around.image,) if around.image else ()
        return Surroundings(dict(around.environment), image, self.files, around.usual)

    def _add(self, lines: list[LaunchLine], around: _Around) -> None:
        role = around.role or "both"
        self.found.workers += [Worker(line, role, around.replicas, around.name) for line in lines]
        if len(self.found.workers) > _MOST_WORKERS:
            raise UsageError("too many launch lines", WHERE, expected=f"at most {_MOST_WORKERS}")

    def _read_stack(self, value: Mapping[str, Any], around: _Around) -> None:
        """Read an entry of the production stack's ``modelSpec``."""
        settings, cache = (dict(value.get(name) or {}) for name in ("vllmConfig", "lmcacheConfig"))
        extra = [str(word) for word in settings.pop("extraArgs", None) or []]
        environment = dict(around.environment)
        for version in ("v0", "v1"):
            if version in settings:
                on = str(settings.pop(version)) == "1"
                environment["VLLM_USE_V1"] = "1" if on == (version == "v1") else "0"
        words = [*options_of({_dashed(key): one for key, one in settings.items()}), *extra]
        role = around.role
        if cache.pop("enabled", False) is True:
            kind = str(cache.pop("kvRole", "kv_both"))
            role = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(kind, role)
            words += ["--kv-transfer-config", f'{{"kv_connector":"LMCacheConnectorV1","kv_role":"{kind}"}}']
            for key, name in (("cpuOffloadingBufferSize", "CPU"), ("diskOffloadingBufferSize", "DISK")):
                if key in cache:
                    environment[f"LMCACHE_MAX_LOCAL_{name}_SIZE"] = str(cache.pop(key))
            self.found.aside += [f"lmcacheConfig.{key}: {one}" for key, one in cache.items()]
        image = f"{value.get('repository', '')}:{value.get('tag', '')}"
        around = replace(around, environment=environment, image=image, role=role)
        script = shlex.join(["vllm", "serve", str(value["modelURL"]), *words])
        self._add(lines_of_shell(script, self._surroundings(around), self.model), around)


def _entered(value: Mapping[str, Any], around: _Around, key: str) -> _Around:
    """Return what counts inside a mapping."""
    names = [value.get("name"), _at(value, "metadata", "name")]
    names += [key] if any(one in value for one in _NAMED) else []
    name = next((str(one) for one in names if one and one not in _UNNAMED), around.name)
    kind = str(value.get("subComponentType") or value.get("componentType") or name)
    role = next((role for role, word in _ROLES.items() if re.search(word, kind, re.I)), around.role)
    counts = (value.get("replicas"), value.get("replicaCount"), _at(value, "deploy", "replicas"))
    replicas = next((int(str(count)) for count in counts if str(count).isdecimal()), around.replicas)
    environment = dict(around.environment)
    for variables in ("env", "environment", "envs"):
        environment |= _environment(value.get(variables))
    model, degrees = around.model, around.usual
    for described in (value.get("model"), value.get("modelArtifacts")):
        if isinstance(described, dict):
            named = str(described.get("name") or described.get("uri") or "")
            model = named.partition("://")[2] or named
    parallel = value.get("parallelism")
    if isinstance(parallel, dict):
        degrees = tuple(f"{_DEGREES[one]}={count}" for one, count in parallel.items() if one in _DEGREES)
        degrees += ("--enable-expert-parallel",) * (parallel.get("expert") is True)
    image = value.get("image")
    return _Around(
        name,
        role,
        min(replicas, 9999),
        image if isinstance(image, str) else around.image,
        model,
        environment,
        degrees,
    )


def _environment(value: Any) -> dict[str, str]:
    """Return variables: a list of names and values, a list of NAME=VALUE, or a mapping."""
    if isinstance(value, dict):
        return {name: "" if one is None else str(one) for name, one in value.items()}
    found: dict[str, str] = {}
    for one in value if isinstance(value, list) else ():
        if isinstance(one, str) and "=" in one:
            found[one.partition("=")[0]] = one.partition("=")[2]
        elif isinstance(one, dict) and "name" in one and "value" in one:
            found[str(one["name"])] = str(one["value"])
    return found


def _is_command(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and not isinstance(value[0], dict)
    )


def _words(value: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the words of a container, and its script if it has one text instead of words."""
    words: list[str] = []
    script = ""
    for key in _COMMAND:
        one = value.get(key)
        if key == "commands" and isinstance(one, list):
            one = "\n".join(map(str, one))
        if isinstance(one, str):
            script += f" {one}" if script else one
        elif isinstance(one, list):
            words += [_resolved(str(word), environment) for word in one]
    return words, f"{shlex.join(words)} {script}".strip() if script else ""


def _resolved(word: str, environment: Mapping[str, str]) -> str:
    """Return a word with Kubernetes' ``$(NAME)`` replaced by the container's variables."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), word)


def _engine(words: list[str]) -> str:
    """Return the engine that knows the most of a list's flags."""
    from kvcache_sim.scenario.launch.flags import launch_engines

    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    return max(launch_engines(), key=lambda engine: sum(name in engine.spellings() for name in names)).name


def _at(value: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None  # type: ignore[assignment]
    return value


def _dashed(name: str) -> str:
    """Return a key of a chart as a flag's name: maxModelLen is max-model-len."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: f"-{found[1].lower()}", name)
