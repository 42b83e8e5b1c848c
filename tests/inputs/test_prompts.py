"""Bodies of OpenAI, Anthropic and Gemini as prompts: their order, what the next turn repeats, what is not rendered."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.workload.prompts.body import BodyError, Seen
from kvcache_sim.workload.prompts.read import answer_of, prompt_of
from kvcache_sim.workload.prompts.render import rendered, shown
from kvcache_sim.workload.prompts.responses import joined
from ruamel.yaml import YAML
from support.examples import examples
from support.word_tokenizer import write_tokenizer

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}
CLAUDE_TOOL = {"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
CALLED = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>\n'
THOUGHT = "<think>\nhm\n</think>\n\n"
OPENER = "<|im_start|>assistant\n"


def text_of(prompt) -> str:
    return "".join(f"[{own.kind}:{own.tokens}]" if not own.text else own.text for own in prompt)


def said(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


#: Bodies, the turns of their rendered prompts (<hm>: a thought, <f>: a call) and the things that are counted.
BODIES = YAML(typ="safe").load("""
"openai: tools come first, in the body's order of members; calls and results follow":
  body:
    messages:
    - {role: system, content: s}
    - {role: user, content: [{type: text, text: u}]}
    - {role: assistant, content: null, tool_calls: [{id: c1, type: function, function: &call {name: f,
        arguments: '{"x": 1}'}}], reasoning_content: hm}
    - {role: tool, tool_call_id: c1, content: r}
    tools: [{type: function, function: &function {name: f, parameters: {b: 1, a: 2}}}]
  turns: [[tools, '{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}'], [system, s],
    [user, u], [assistant, <hm><f>], [tool, r]]
openai's functions:
  body:
    functions: [*function]
    messages: [{role: assistant, content: null, function_call: *call}]
    response_format: {type: json_schema}
  turns: [[tools, '{"name": "f", "parameters": {"b": 1, "a": 2}}'], [assistant, <f>]]
  counted: [response_format (json_schema)]
"anthropic: tools, system, messages; markers of caches and signatures are no content":
  body:
    messages:
    - {role: user, content: u}
    - {role: assistant, content: [{type: thinking, thinking: hm, signature: x},
        {type: tool_use, id: t, name: f, input: {x: 1}}]}
    - {role: user, content: [{type: tool_result, tool_use_id: t, content: [{type: text, text: r}]},
        {type: text, text: more, cache_control: {type: ephemeral}}]}
    system: [{type: text, text: s, cache_control: {type: ephemeral}}]
    tools: [{name: f, input_schema: {}, cache_control: {type: ephemeral}}]
  turns: [[tools, '{"name": "f", "input_schema": {}}'], [system, s], [user, u], [assistant, <hm><f>], [tool, r],
    [user, more]]
"responses: the items of an answer are one message":
  body:
    instructions: s
    tools: [{type: function, name: f}]
    input:
    - {type: message, role: user, content: [{type: input_text, text: u}]}
    - {type: reasoning, summary: [{type: summary_text, text: hm}]}
    - {type: function_call, call_id: c, name: f, arguments: '{"x": 1}'}
    - {type: function_call_output, call_id: c, output: r}
    - {type: reasoning, encrypted_content: x}
  turns: [[tools, '{"type": "function", "name": "f"}'], [system, s], [user, u], [assistant, <hm><f>], [tool, r],
    [assistant, ""]]
  counted: [thinking blocks have no text]
gemini:
  body:
    systemInstruction: {parts: [{text: s}]}
    tools: [{functionDeclarations: [{name: f}]}]
    contents:
    - {role: user, parts: [{text: u}, {inlineData: {mimeType: image/png, data: A}}]}
    - {role: model, parts: [{text: hm, thought: true}, {functionCall: {name: f, args: {x: 1}}}]}
    - {role: user, parts: [{functionResponse: {name: f, response: {y: 2}}}]}
  turns: [[tools, '{"functionDeclarations": [{"name": "f"}]}'], [system, s], [user, "u[image:258]"],
    [assistant, <hm><f>], [tool, '{"y": 2}']]
  counted: ["inline_image parts are not rendered: 258 tokens"]
images, files and parts of unknown types:
  body:
    messages:
    - role: user
      content: [{type: image_url, image_url: {url: a}}, {type: image_url, image_url: {url: a, detail: low}},
        {type: image, source: {type: base64, data: a}}, {type: document, source: {type: text, data: whole}},
        {type: document, source: {type: base64, data: a}}, {type: hologram, of: a}]
  turns: [[user, '[image:765][image:85][image:1590]whole[file:2000]{"type": "hologram", "of": "a"}']]
  counted: ["image_url parts are not rendered: 765", 85 tokens, 1590 tokens, document parts, unknown type 'hologram']
""")


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_rendered_in_its_providers_order_and_the_rest_is_counted(name):
    body, turns, counted = BODIES[name]["body"], BODIES[name]["turns"], BODIES[name].get("counted", [])
    shown = [(role, text.replace("<hm>", THOUGHT).replace("<f>", CALLED)) for role, text in turns]
    seen = Seen()
    whole = said(*((role, f"{text}\n" if role == "tools" else text) for role, text in shown))
    assert text_of(rendered(prompt_of(body, seen))) == whole + OPENER
    assert len(seen) == len(counted)
    assert all(any(words in what for what in seen) for words in counted)


TEXT = st.text(max_size=6)
NAME = st.text("fgh", min_size=1, max_size=3)
ARGUMENTS = st.dictionaries(NAME, st.integers(0, 9), max_size=2)
#: Thinking, texts and calls of an answer; the next prompt repeats them.
ANSWER = st.tuples(TEXT, TEXT.filter(bool), st.lists(st.tuples(NAME, ARGUMENTS), max_size=2))


def openai(thought, text, calls):
    asked = [{"type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for n, a in calls]
    answer = {"role": "assistant", "content": text, "tool_calls": asked, "reasoning_content": thought}
    return {"choices": [{"message": answer}]}, {"messages": [answer]}


def anthropic(thought, text, calls):
    blocks = [{"type": "thinking", "thinking": thought}, {"type": "text", "text": text}]
    blocks += [{"type": "tool_use", "name": n, "input": a} for n, a in calls]
    answer = {"type": "message", "role": "assistant", "content": blocks}
    return answer, {"messages": [answer]}


def responses(thought, text, calls):
    items = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}]
    items += [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
    items += [{"type": "function_call", "name": n, "arguments": json.dumps(a)} for n, a in calls]
    return {"output": items}, {"input": items}


def gemini(thought, text, calls):
    parts = [{"text": thought, "thought": True}, {"text": text}]
    parts += [{"functionCall": {"name": n, "args": a}} for n, a in calls]
    content = {"role": "model", "parts": parts}
    return {"candidates": [{"content": content}]}, {"contents": [content]}


ASKED = {
    openai: ("messages", {"role": "user", "content": "u"}, {"system": "s", "tools": [TOOL]}),
    anthropic: ("messages", {"role": "user", "content": "u"}, {"system": "s", "tools": [CLAUDE_TOOL]}),
    responses: ("input", {"role": "user", "content": "u"}, {"instructions": "s"}),
    gemini: ("contents", {"role": "user", "parts": [{"text": "u"}]}, {"systemInstruction": "s"}),
}


@examples(60)
@given(st.sampled_from(sorted(ASKED, key=str)), ANSWER)
def test_the_next_prompt_begins_with_the_prompt_and_its_answer(family, answer):
    name, question, more = ASKED[family]
    response, repeated = family(*answer)
    first = {name: [question], **more}
    second = {name: [question, *repeated[name], question], **more}
    before = text_of(rendered(prompt_of(first, Seen())))
    answered = text_of(shown(answer_of(response, Seen())))
    after = text_of(rendered(prompt_of(second, Seen())))
    assert after == before + answered + "<|im_end|>\n" + said(("user", "u")) + OPENER
    if family is responses:  # with previous_response_id the input is the question alone
        chain = (*prompt_of(first, Seen()).messages, answer_of(response, Seen()))
        new = prompt_of({name: [question]}, Seen())
        whole = prompt_of(first, Seen())._replace(messages=joined(chain, new.messages))
        assert text_of(rendered(whole)) == after


def names(*parts) -> list:
    prompt = rendered(prompt_of({"messages": [{"role": "user", "content": list(parts)}]}, Seen()))
    return [own.name for own in prompt if own.kind == "image"]


def test_equal_images_are_equal_and_others_are_not_whatever_marks_them():
    marked = {"type": "image", "source": {"data": "a"}, "cache_control": {"type": "ephemeral"}}
    one, other = ({"type": "image", "source": {"data": data}} for data in "ab")
    assert len({*names(one, marked, one)}) == 1
    assert len({*names(one, other)}) == 2


WRONG = {
    '{"messages": []}': "not a chat",
    '{"messages": ["x"]}': "not a message; got x",
    '{"messages": [{"role": "user", "content": 5}]}': "not a message's content; got 5",
    '{"messages": [{"role": "user", "content": [5]}]}': "not a part of a message; got 5",
    '{"messages": [{"role": "user", "content": "u"}], "tools": {"a": 1}}': "tools is no list",
    '{"messages": [{"role": "assistant", "tool_calls": "x"}]}': "tool_calls is no list; got x",
    '{"contents": [5]}': "not a content; got 5",
    '{"contents": [{"parts": [5]}]}': "not a part of a message; got 5",
    '{"input": [5], "store": true}': "not an item of a response; got 5",
    '{"prompt": ["a", "b"]}': "several prompts in one request",
    '{"prompt": "x", "usage": {"prompt_tokens": -1}}': "prompt_tokens is no count; got -1",
    '{"prompt": "x", "usage": {"cache_read_input_tokens": "9"}}': "cache_read_input_tokens is no count",
}


@pytest.mark.parametrize("body", WRONG)
def test_a_wrong_body_is_one_line_with_its_number(body, tmp_path, capsys):
    path = tmp_path / "l.jsonl"
    good = '{"time": 1, "prompt": "x", "max_tokens": 2}\n'
    row = {"time": 2, "max_tokens": 2, **json.loads(body)}
    path.write_text(good + json.dumps(row) + "\n")
    assert run(["trace", "import", str(path), "--from", "openai"]) == 3
    assert f"{path}:2: {WRONG[body]}" in " ".join(capsys.readouterr().err.split())
    assert run(["trace", "import", str(path), "--from", "openai", "--on-bad-row", "skip"]) == 0


MEMBERS = "type role content text parts name input function tool_calls source message".split()
WORDS = st.sampled_from(["", "x", "user", "image", "text"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**33) | st.floats() | WORDS,
    lambda own: st.lists(own, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), own, max_size=4),
    max_leaves=12,
)


@examples(150)
@given(st.sampled_from(["messages", "contents", "input", "prompt"]), ANY, ANY)
def test_any_value_is_a_prompt_or_a_wrong_body(member, value, other):
    for read, body in (
        (prompt_of, {member: value, "tools": other, "system": other}),
        (answer_of, other),
        (answer_of, {"output": value}),
    ):
        with suppress(BodyError):
            read(body, Seen())


TEMPLATE = (
    "{% for t in tools or [] %}tool {{ t.name }} {% endfor %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ m.role }} {{ m.content }} "
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments.x }} {% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant {{ eos_token }}{% endif %}"
)


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_template_in_the_tokenizers_folder_renders_chats(file, tmp_path, capsys):
    """9 words, an image, and the end of the text: each is a token; the image 765."""
    config = {"eos_token": {"content": "eos"}}
    config |= {"chat_template": [{"name": "default", "template": TEMPLATE}]} if file.endswith("json") else {}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if file.endswith("jinja"):
        (tmp_path / file).write_text(TEMPLATE)
    write_tokenizer(tmp_path / "tokenizer.json", ["tool", "f", "user", "a", "assistant", "1", "b", "eos"])
    image = {"type": "image_url", "image_url": {"url": "z"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a "}, image]},
        {"role": "assistant", "content": "b", "tool_calls": [CALL]},
    ]
    row = {"time": 1, "messages": messages, "tools": [{"name": "f"}], "max_tokens": 1}
    log = tmp_path / "l.jsonl"
    log.write_text(json.dumps(row))
    asked = ["trace", "import", str(log), "--tokenizer", str(tmp_path / "tokenizer.json")]
    assert run(asked) == 0
    done = capsys.readouterr()
    words = ["tool", "f", "user", "a", "assistant", "b", "1", "assistant", "eos"]
    assert json.loads(done.out)["input_length"] == len(words) + 765
    assert f"chats are rendered as {tmp_path / file}" in " ".join(done.err.split())
    row["messages"].append({"role": "tool", "content": "r"})
    log.write_text(json.dumps(row))
    assert run(asked) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the chat template failed" in said
    assert "no tools here" in said
