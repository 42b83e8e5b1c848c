"""Prompts of calls as paths of blocks in a provider's cache, and the tokens at their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcache_sim._core import HostedCache
from kvcache_sim.extras.session.calls import Call, Conversation, Segment

#: Parameters whose change keeps tools alone; a change of any other one keeps the system text too.
_OF_SYSTEM = ("speed", "web_search", "citations")
#: Kinds of blocks before the messages.
HEAD = ("tools", "system")


@dataclass(slots=True)
class Prompt:
    """A call's prompt in a cache: the prefixes at its end, and after its answer.

    ``owner`` is the conversation whose tools and system it has. ``heads`` are the prefixes at which clients
    mark tools and system, shortest first; ``thinking`` counts the blocks of thinking up to ``end``. At
    ``fork`` it parts from the prompts before it.
    """

    scope: str
    owner: Conversation
    heads: tuple[int, ...]
    tail: int
    end: int = 0
    thinking: int = 0
    fork: int = 0

    @property
    def head(self) -> int:
        """The prefix of tools and system; 0 without them."""
        return self.heads[-1] if self.heads else 0


class Prompts:
    """The prompts of a provider's calls; ``sizes`` has the tokens of prefixes as far as they are known.

    ``heads`` has names for the tools and system of conversations whose logs have them not.
    """

    def __init__(self, cache: HostedCache, heads: Mapping[str, str]) -> None:
        self.cache, self._named_heads = cache, heads
        self.sizes: dict[int, int] = {}
        self._segments: dict[int, Segment] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._heads: dict[int, str] = {}
        self._heads_at: dict[str, int] = {}
        self._unnamed = self._fork = 0
        #: By conversation, changes that no line of its log shows, as parameters.
        self._changes: dict[str, dict[str, str]] = {}
        #: By conversation, the name of tools and system that it has since such a change.
        self.renamed: dict[str, str] = {}

    def made(self, call: Call, before: tuple[Call, Prompt] | None, strips: bool = False) -> Prompt:
        """Return a call's prompt; ``strips``: without the thinking of earlier answers."""
        scope, history, self._fork = scope_of(call), call.history, 0
        if before is not None and history.kept is None and not strips:
            was = before[1]
            if was.scope == scope and before[0].parameters == call.parameters:
                tail = self._extended(was.end, call.added)
                thinking = was.thinking + _thinking(call.added)
                return self._answered(Prompt(scope, was.owner, was.heads, tail, thinking=thinking), call)
        segments = self.segments(before[1].end) if before else []
        segments = segments if history.kept is None else segments[: history.kept]
        segments = [each for each in segments if not (strips and each.kind == "thinking")]
        owner = before[1].owner if before is not None and segments else call.conversation
        return self._whole(Prompt(scope, owner, (), 0), [*segments, *call.added], call)

    def changed(self, call: Call, prompt: Prompt, read: int, kind: str) -> Prompt:
        """Return a prompt again that changed where no line shows it: it read so much of what was before.

        ``kind`` is what changed: ``tools``, ``system``; any other, the messages.
        """
        path = [] if kind in HEAD else self.cache.path(prompt.tail)
        kept = next((k for k, at in enumerate(path) if self.sizes.get(at) == read), None)
        if kept is not None and read:
            rest = [self._segments[at] for at in path[kept + 1 :] if at in self._segments]
            tail = self._extended(self._fixed(path[kept], "changed", call.id), rest)
            made = Prompt(
                prompt.scope, prompt.owner, prompt.heads, tail, thinking=_thinking(self.segments(tail))
            )
            return self._answered(made, call)
        named = "speed" if kind in HEAD and read else kind if kind in HEAD else "thinking"
        if kind not in HEAD or prompt.owner.chain not in self.renamed:
            self._changes.setdefault(prompt.owner.chain, {})[named] = call.id
        return self._whole(Prompt(prompt.scope, prompt.owner, (), 0), self.segments(prompt.tail), call)

    def segments(self, prefix: int) -> list[Segment]:
        """Return the blocks of a prefix."""
        return [self._segments[at] for at in self.cache.path(prefix) if at in self._segments]

    def block(self, prefix: int) -> list[Segment]:
        """Return the last block of a prefix; none for a mark that is no block."""
        return [self._segments[prefix]] if prefix in self._segments else []

    def unknown_name(self, scope: str, name: str) -> str:
        """Return the name of tools and system that the log does not have, in a model's cache."""
        return f"{scope}| {name}"

    def keeps(self, name: str, now_ns: int) -> bool:
        """Return True if the cache has tools and system of this name."""
        at = self._heads_at.get(name, 0)
        return at > 0 and self.cache.find(at, [at], now_ns)[0] == at

    def name(self, prefix: int) -> str:
        """Return the name of a prefix of tools and system, the same in every cache; "" for any other."""
        return self._heads.get(prefix, "")

    def marks(self, prompt: Prompt, call: Call) -> list[tuple[int, str]]:
        """Return the breakpoints of a call with their lifetimes: the log's, else the client's usual ones."""
        if call.marks:
            path = [at for at in self.cache.path(prompt.tail) if at in self._segments]
            return [(path[mark.block], mark.ttl) for mark in call.marks if mark.block < len(path)]
        return [(at, "") for at in dict.fromkeys((*prompt.heads, prompt.tail))]

    def _whole(self, prompt: Prompt, segments: Sequence[Segment], call: Call) -> Prompt:
        """Complete a prompt from its first block on; parameters stand where a change of them parts two."""
        rest = next((k for k, each in enumerate(segments) if each.kind not in HEAD), len(segments))
        tools = next((k for k, each in enumerate(segments[:rest]) if each.kind != "tools"), rest)
        settings = {**call.parameters, **self._changes.get(prompt.owner.chain, {})}
        name, heads = prompt.scope + "".join(settings.pop(kind, "") for kind in HEAD), list[int]()
        at = self._fixed(0, "scope", name)
        of_system = sorted(each for each in settings.items() if each[0] in _OF_SYSTEM)
        others = sorted(each for each in settings.items() if each[0] not in _OF_SYSTEM)
        for part, spoilers in ((segments[:tools], of_system), (segments[tools:rest], others)):
            name += "".join(f"|{each.name}" for each in part)
            if is_unknown(part):
                owner = prompt.owner.chain
                name = self.unknown_name(
                    prompt.scope, self.renamed.get(owner) or self._named_heads.get(owner, owner)
                )
                heads = [at := self._fixed(at, "unknown", name)]
                self._heads[at], self._heads_at[name] = name, at
                name += f" {prompt.owner.session}"
                at = self._fixed(at, "unknown", name)
                self._segments[at] = part[0]
            elif part:
                at, heads = self._extended(at, part), []
            if part:
                heads.append(at)
                self._heads[at] = name
            at = self._fixed(at, "settings", repr(spoilers)) if spoilers or part else at
        prompt.heads, prompt.thinking = tuple(heads), _thinking(segments)
        prompt.tail = self._extended(at, segments[rest:])
        return self._answered(prompt, call)

    def _answered(self, prompt: Prompt, call: Call) -> Prompt:
        prompt.fork = self._fork
        prompt.end = self._extended(prompt.tail, call.answer)
        prompt.thinking += _thinking(call.answer)
        return prompt

    def _fixed(self, at: int, kind: str, name: str) -> int:
        return self.cache.extend(at, [self._id(kind, name)])[0][0]

    def _extended(self, at: int, segments: Sequence[Segment]) -> int:
        if not segments:
            return at
        named = [each if each.name else self._named(each) for each in segments]
        nodes, known = self.cache.extend(at, [self._id(each.kind, each.name) for each in named])
        if known < len(nodes) and not self._fork:
            self._fork = nodes[known - 1] if known else at
        self._segments.update(zip(nodes, named, strict=True))
        return nodes[-1]

    def _named(self, segment: Segment) -> Segment:
        self._unnamed += 1
        return Segment(segment.kind, f"unnamed {self._unnamed}", segment.size_bytes, segment.tokens)

    def _id(self, kind: str, name: str) -> int:
        return self._ids.setdefault((kind, name), len(self._ids) + 1)


def scope_of(call: Call) -> str:
    """Return the name of the cache of a call's model and workspace."""
    return f"{call.conversation.provider} {call.conversation.workspace} {call.model}"


def is_unknown(head: Sequence[Segment]) -> bool:
    """Return True for tools and system that the log does not have."""
    is_bare = len(head) == 1 and head[0].kind == "system" and not head[0].size_bytes
    return is_bare and (head[0].tokens is None or not head[0].name)


def first_difference(was: Sequence[Segment], now: Sequence[Segment]) -> int:
    """Return the number of equal blocks at the beginning of two prompts."""
    pairs = enumerate(zip(was, now, strict=False))
    return next((k for k, (one, other) in pairs if one != other), min(len(was), len(now)))


def _thinking(segments: Sequence[Segment]) -> int:
    return sum(each.kind == "thinking" for each in segments)
