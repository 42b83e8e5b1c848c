"""Claude Code logs of planned sessions, and what a provider serves them: block by block, from the published rules.

``play`` writes a plan as a log; two plays of a plan may differ by one option. Rules and form: the
sheet on agents, parts 1.1, 2.1 and 3. Nothing of the product is used.
"""

import json
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

BYTES_A_TOKEN = 4
WRAP = 50
INSTRUCTION = 500
SUMMARY = 2000


@dataclass(frozen=True)
class Block:
    """A piece of a prompt: equal names are equal bytes."""

    kind: str
    name: str
    tokens: int


@dataclass
class Entry:
    """A prefix in the cache: when it can be read, and until when."""

    ready_s: float
    until_s: float
    ttl_s: int


@dataclass(frozen=True)
class Served:
    """One call as the provider bills it; ``cause`` is why it read less than its last call left."""

    id: str
    read: int
    written: int
    uncached: int
    cause: str
    ttl_s: int
    output: int


class Provider:
    """A cache of marked prefixes, one a model."""

    def __init__(self, minimum=1024, look_back=20):
        self.minimum, self.look_back, self.entries = minimum, look_back, {}

    def serve(self, model, blocks, marks, times, ttl_s):
        """Return a call's (read, written, uncached) tokens; ``marks`` count blocks, ``times``: start, first token."""
        start_s, first_s = times
        keys, sizes, chain, size = [], [], model, 0
        for block in blocks:
            chain = sha256(f"{chain}|{block.name}|{block.tokens}".encode()).hexdigest()
            size += block.tokens
            keys.append(chain)
            sizes.append(size)
        alive = {key for key in keys if (e := self.entries.get(key)) and e.ready_s <= start_s <= e.until_s}
        reach = {at - back for at in marks for back in range(self.look_back + 1) if at > back}
        found = max((at for at in reach if keys[at - 1] in alive), default=0)
        read = sizes[found - 1] if found else 0
        for key in keys[:found]:
            if key in alive:
                self.entries[key].until_s = start_s + self.entries[key].ttl_s
        kept = [at for at in marks if sizes[at - 1] >= self.minimum]
        for at in kept:
            if at > found:
                self.entries[keys[at - 1]] = Entry(first_s, start_s + ttl_s, ttl_s)
        end = max([read, *(sizes[at - 1] for at in kept)])
        return read, end - read, size - end


@dataclass(frozen=True)
class Step:
    """The input of a call (results of tools, else a user's text), and its answer."""

    gap_s: float
    results: tuple[int, ...] = ()
    user: int = 0
    answer: int = 200
    took_s: float = 2.0
    #: "", "edit", "model", "tools", "system", "user turn", "parameters", "compaction"
    event: str = ""


@dataclass(frozen=True)
class Options:
    """Settings of a play of a plan."""

    model: str = "claude-opus-4-6"
    ttl_s: int = 300
    tools: int = 9000
    system: int = 3000
    minimum: int = 1024
    labels: bool = True
    snapshots: bool = True
    #: The events that happen; those left out do not take place.
    events: frozenset[str] = frozenset(
        {"edit", "model", "tools", "system", "user turn", "parameters", "compaction"}
    )
    compact_at: int = 0
    drop_older: int = 0
    placeholder: int = 12
    second_last: bool = False


LABELS = {
    "model": "model_changed",
    "tools": "tools_changed",
    "system": "system_changed",
    "edit": "messages_changed",
    "compaction": "messages_changed",
    "user turn": "messages_changed",
    "parameters": "unavailable",
}


@dataclass
class Session:
    """A client with one conversation: its prompt, the lines of its log, and what was served."""

    provider: Provider
    name: str
    options: Options
    now_s: float = 0.0
    side: str = ""
    lines: list = field(default_factory=list)
    calls: list = field(default_factory=list)

    def __post_init__(self):
        self.model, self.order, self.dated = self.options.model, 0, 0
        self.messages, self.carried, self.marked, self.last_uuid = [], 0, None, None
        self.turn = 0
        self.snapshot()

    # -- the log

    def line(self, kind, at_s, **members):
        stamp = datetime(2026, 3, 2, tzinfo=UTC) + timedelta(seconds=round(at_s, 3))
        uuid = f"{self.name}{self.side}-{len(self.lines)}"
        row = {"type": kind, "uuid": uuid, "parentUuid": self.last_uuid, "sessionId": self.name}
        row |= {"isSidechain": bool(self.side), "version": "2.1.280", "cwd": f"/home/u/{self.name}"}
        row |= {"agentId": self.side} if self.side else {}
        row["timestamp"] = stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.lines.append({**row, **members})
        self.last_uuid = uuid

    def snapshot(self):
        if self.options.snapshots:
            tools = [{"name": block.name[-1], "description": block.name} for block in self.tool_blocks()]
            said = {"type": "prompt_snapshot", "systemPrompt": [self.system_block().name], "tools": tools}
            self.line("attachment", self.now_s, attachment=said)

    # -- the prompt

    def tool_blocks(self):
        each = [Block("tools", f"definition of tool {k}", self.options.tools // 5) for k in range(5)]
        return each[self.order % 5 :] + each[: self.order % 5]

    def system_block(self):
        return Block("system", f"instructions of the day {self.dated}", self.options.system)

    def add(self, kind, tokens):
        self.turn += 1
        block = Block(kind, f"{self.name}{self.side} {kind} {self.turn}", tokens)
        self.messages.append(block)
        return text_of(block)

    def step(self, step):
        """Play a step of the plan."""
        self.now_s += step.gap_s
        event = step.event if step.event in self.options.events else ""
        is_due = event == "compaction" or self.too_long(step)
        self.change(event)
        for number, size in enumerate(step.results):
            part = {
                "type": "tool_result",
                "tool_use_id": f"t{self.turn}.{number}",
                "content": self.add("result", size),
            }
            self.line("user", self.now_s, message={"role": "user", "content": [part]})
        if is_due:  # results that wait go into the summary
            self.compact()
            event = "compaction"
        if step.user:
            content = self.add("user", step.user)
            self.line("user", self.now_s, message={"role": "user", "content": content})
        self.call(step, event)

    def too_long(self, step):
        size = sum(b.tokens for b in self.prompt()) + step.user + sum(step.results)
        return 0 < self.options.compact_at < size

    def change(self, event):
        if event == "edit":
            middle = next(k for k, block in enumerate(self.messages) if k >= len(self.messages) // 2)
            self.messages[middle] = replace(self.messages[middle], name=f"edited {self.turn}")
        elif event in ("user turn", "parameters"):
            self.messages[0] = replace(self.messages[0], name=f"{event} {self.turn}")
        elif event == "model":
            self.model = f"{self.options.model}@{self.turn}"  # another cache at the same price
        elif event in ("tools", "system"):
            self.order, self.dated = self.order + (event == "tools"), self.dated + (event == "system")
            self.snapshot()

    def prompt(self):
        messages, results = (
            list(self.messages),
            [k for k, b in enumerate(self.messages) if b.kind == "result"],
        )
        if self.options.drop_older:
            for k in results[: -self.options.drop_older]:
                messages[k] = Block("result", "dropped", self.options.placeholder)
        return [*self.tool_blocks(), self.system_block(), *messages]

    def compact(self):
        """Summarise: one more call that rides the prefix, then the summary in place of all messages."""
        ask = Session(
            self.provider,
            self.name,
            replace(self.options, snapshots=False),
            self.now_s,
            f"acompact-{self.turn}",
        )
        ask.messages, ask.order, ask.dated, ask.model = (
            list(self.messages),
            self.order,
            self.dated,
            self.model,
        )
        ask.carried, ask.marked, ask.last_uuid = self.carried, self.marked, self.last_uuid
        ask.line("user", self.now_s, message={"role": "user", "content": ask.add("user", INSTRUCTION)})
        ask.call(Step(0, answer=SUMMARY, took_s=10.0), "")
        self.calls += ask.calls
        self.summaries = [*getattr(self, "summaries", []), ask]
        before = sum(block.tokens for block in self.prompt())
        self.now_s += 12.0
        self.last_uuid, self.messages = None, []
        self.line(
            "system",
            self.now_s,
            subtype="compact_boundary",
            compactMetadata={"trigger": "auto", "preTokens": before},
        )
        content = self.add("user", SUMMARY + WRAP)
        self.line("user", self.now_s, isCompactSummary=True, message={"role": "user", "content": content})

    # -- the call

    def call(self, step, event):
        blocks = self.prompt()
        marks = [len(self.tool_blocks()) + 1, len(blocks)]
        if self.options.second_last and self.marked in blocks:
            marks.append(blocks.index(self.marked) + 1)
        served = self.provider.serve(
            self.model, blocks, sorted(set(marks)), (self.now_s, self.now_s + 1.0), self.options.ttl_s
        )
        cause = self.cause(served, event)
        self.marked = blocks[-1]
        name = f"m-{self.name}{self.side}-{len(self.calls)}"
        self.calls.append(Served(name, *served, cause, self.options.ttl_s, step.answer))
        self.answer(name, served, step, cause)
        self.carried = served[0] + served[1]
        self.now_s += step.took_s

    def cause(self, served, event):
        if not self.calls and not self.carried:
            return "first"
        if event:
            return event
        return "continue" if served[0] >= self.carried else "ttl"

    def answer(self, name, served, step, cause):
        read, written, uncached = served
        lives = {"ephemeral_5m_input_tokens": written if self.options.ttl_s == 300 else 0}
        lives["ephemeral_1h_input_tokens"] = written - lives["ephemeral_5m_input_tokens"]
        usage = {
            "input_tokens": uncached,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }
        usage |= {"cache_creation": lives, "output_tokens": step.answer}
        reason = None
        if cause in LABELS:
            reason = {"type": LABELS[cause]}
            if cause != "parameters":
                reason["cache_missed_input_tokens"] = max(1, self.carried - read)
        message = {
            "id": name,
            "role": "assistant",
            "model": self.model,
            "usage": usage,
            "stop_reason": "end_turn",
        }
        if self.options.labels:
            message["diagnostics"] = {"cache_miss_reason": reason} if reason else None
        for number, size in enumerate((step.answer // 2, step.answer - step.answer // 2)):
            text = self.add("answer", size)  # one line a piece, the usage on each
            at_s = self.now_s + 1.0 + number * (step.took_s - 1.0)
            self.line("assistant", at_s, message={**message, "content": [{"type": "text", "text": text}]})

    def write(self, folder):
        """Write the log and those of its compactions; return the path."""
        path = folder / f"{self.name}{self.side}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        for each in getattr(self, "summaries", []):
            each.write(folder)
        return path


def text_of(block):
    """Return a text of a block's length, another for another block."""
    return (block.name + " ").ljust(block.tokens * BYTES_A_TOKEN, "x")[: block.tokens * BYTES_A_TOKEN]


def plan(seed, calls=40, events=(), lapses=0):
    """Return a session's steps: turns of a user with some calls of tools; each event at a call of its own."""
    draw = random.Random(f"agent plan {seed}")
    steps = [Step(0.0, user=draw.randrange(50, 900))]
    for _ in range(calls - 1):
        gap = draw.uniform(0.5, 20.0)
        is_user = draw.random() < 0.15
        results = (
            () if is_user else tuple(draw.randrange(20, 3000) for _ in range(draw.choice((1, 1, 1, 2, 3))))
        )
        steps.append(
            Step(
                gap,
                results,
                draw.randrange(20, 500) if is_user else 0,
                draw.randrange(20, 900),
                draw.uniform(1.5, 9),
            )
        )
    chosen = draw.sample(range(5, calls), len(events) + lapses)
    for at, event in zip(chosen, [*events, *[""] * lapses], strict=True):
        step = replace(steps[at], event=event)
        steps[at] = step if event else replace(step, gap_s=draw.uniform(320.0, 2500.0))
    return steps


def play(steps, name="s", options=None, provider=None, start_s=0.0):
    """Return the session of a plan."""
    options = options or Options()
    session = Session(provider or Provider(options.minimum), name, options, start_s)
    for step in steps:
        session.step(step)
    return session
