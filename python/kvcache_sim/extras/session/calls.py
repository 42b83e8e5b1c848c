"""Calls of agents' sessions as their logs have them, and what a hosted cache is predicted to do with each.

A prompt is a list of content blocks in rendered order: tools, system, messages. A call states only what it
adds to the call that it continues (``History``), so that long sessions cost what they add.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcache_sim.base.values import Value, field

#: Causes of a call that read less than the calls before left, in the order in which they are named; ``first``
#: begins a conversation and ``continue`` reads all that was left: these two are no breaks. ``edit`` is a
#: change of the messages that is neither a compaction nor a plain message of the user.
CAUSES = (
    "first",
    "continue",
    "model",
    "tools",
    "system",
    "parameters",
    "compaction",
    "edit",
    "user turn",
    "ttl",
    "look-back",
    "concurrent",
    "below minimum",
    "unknown",
)
NO_BREAKS = ("first", "continue")


class Segment(Value):
    """A content block of a prompt; equal kind and ``name`` (a hash of its content) are equal content.

    A first block of the kind ``system`` without name and size stands for tools and system that the log does
    not have: one workspace's main conversations have the same, and so have its sub-agents. ``tokens`` is its
    length where the log says it, else it follows from ``size_bytes``.
    """

    kind: str
    name: str = ""
    size_bytes: int = 0
    tokens: int | None = None


class Mark(Value):
    """A breakpoint of a request: on which block of the prompt, from 0, and for how long (``5m``, ``1h``)."""

    block: int
    ttl: str = ""


class Counts(Value):
    """A call's tokens as its log counts them; ``uncached`` is what was neither read nor written.

    ``output``, None: the log's count is that of an unfinished answer, or missing.
    """

    read: int
    uncached: int
    write_5m: int = 0
    write_1h: int = 0
    output: int | None = None
    write_30m: int = 0

    @property
    def written(self) -> int:
        """The tokens written."""
        return self.write_5m + self.write_1h + self.write_30m

    @property
    def prompt(self) -> int:
        """The tokens of the prompt."""
        return self.read + self.uncached + self.written


class Conversation(Value):
    """The cache and the conversation of a call; calls of one workspace and model share a cache.

    ``chain`` is its name: a session has its main one and one for each sub-agent (``is_side``). ``folder`` is
    the first that its log names.
    """

    provider: str
    workspace: str
    session: str
    chain: str
    is_side: bool = False
    folder: str = ""


class Label(Value):
    """The provider's own cause of a miss, in its words (``tools_changed``), and the tokens that it states.

    ``kind`` is "" where the provider compared and named nothing.
    """

    kind: str
    missed_tokens: int | None = None


class History(Value):
    """The beginning of a prompt: the first ``kept`` blocks of an earlier prompt and its answer (None: all).

    ``before`` is that call's id, "" for a prompt that stands alone. ``event`` is what the log says of the
    change: ``compaction``, ``thinking stripped``, ``edit`` by the provider, "" for nothing.
    """

    before: str = ""
    kept: int | None = None
    event: str = ""


class Call(Value):
    """One call of a model.

    ``start_ns`` is the stamp of its last input, ``first_ns`` that of the first line of its answer: from then
    on others read what it wrote. ``added`` are its blocks after those of ``history``, ``answer`` the blocks
    of its answer. ``parameters`` has a text, or a hash, of each that spoils a cache where it changes:
    ``tool_choice``, ``thinking``, ``effort``, ``speed``, ``web_search``, ``citations``.
    """

    id: str
    start_ns: int
    first_ns: int
    model: str
    conversation: Conversation
    counts: Counts | None
    history: History = History()
    added: tuple[Segment, ...] = ()
    answer: tuple[Segment, ...] = ()
    label: Label | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()


def blocks_of(calls: Mapping[str, Call], last: str) -> list[Segment]:
    """Return all blocks of a call's prompt and answer, by its id."""
    chain, name = list[Call](), last
    while name:
        chain.append(calls[name])
        history = chain[-1].history
        name = "" if history.kept == 0 else history.before
    blocks: list[Segment] = []
    for call in reversed(chain):
        blocks[call.history.kept if call.history.kept is not None else len(blocks) :] = call.added
        blocks += call.answer
    return blocks


class Predicted(Value):
    """The tokens of a call that a hosted cache reads and writes, and its cause of a break.

    The tokens rest on the log up to the call's request, the prompt's total and counts of calls before; the
    cause also on its own counts where these show a break that the log does not. ``differs`` names what
    differs first ("tools: block 3"), ``lost_tokens`` is what the call did not read because of the break.
    ``doubt`` says why no rule decides ("just written", "300 to 310 s"), "" if one does. ``is_by_label``: the
    cause is the provider's word alone, since the log shows none.
    """

    id: str
    read: int
    uncached: int
    write_5m: int
    write_1h: int
    cause: str
    differs: str = ""
    lost_tokens: int = 0
    doubt: str = ""
    is_by_label: bool = False
    write_30m: int = 0

    @property
    def written(self) -> int:
        """The tokens written."""
        return self.write_5m + self.write_1h + self.write_30m

    @property
    def is_break(self) -> bool:
        """True if the call read less than the calls before left."""
        return self.cause not in NO_BREAKS
