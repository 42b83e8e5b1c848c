"""Chats of ShareGPT and of OpenAI: each answer is a request of all that was said before it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError
from kvcache_sim.workload.readers import ReadSettings, read_report, read_trace
from support.chatml import chatml
from support.examples import examples


def written(path, text):
    path.write_text(text)
    return path


def conversation(name, *texts):
    roles = ("human", "gpt")
    return {"id": name, "conversations": [{"from": roles[k % 2], "value": t} for k, t in enumerate(texts)]}


#: (max_tokens, tokens of an answer that it stands for).
LIMITS = [*((bad, None) for bad in (None, True, 0, -1, 2**31, 1.5, "3")), (1, 1), (2**31 - 1, 2**31 - 1)]
SPEAKERS = {
    "sharegpt": {"human": False, "GPT": True, "system": False, "Bard": True},
    "openai": {"user": False, "assistant": True, "tool": False},
}


@examples(80)
@given(
    st.sampled_from(sorted(SPEAKERS)),
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=5),
            st.sampled_from(LIMITS),
            st.booleans(),
        ),
        max_size=4,
    ),
    st.none() | st.integers(1, 9),
)
def test_each_answer_is_a_request_of_all_before_it(tmp_path_factory, form, drawn, assumed):
    """An answer behind nothing is history alone; a last prompt is a request where its answer's length is known."""
    roles, rows, expected, silent = SPEAKERS[form], [], [], 0
    drawn = [*drawn, ([(0, 5), (1, 4)], (None, None), False)]
    for number, (said, (limit, most), inner) in enumerate(drawn):
        turns = [(list(roles)[role % len(roles)], size) for role, size in said]
        if form == "sharegpt":
            rows.append(
                {
                    "id": str(number),
                    "conversations": [{"from": who, "value": "x" * size} for who, size in turns],
                }
            )
            most = None
        else:
            parts = [
                [{"type": "text", "text": "x" * size}, {"type": "image_url"}] if size % 2 else "x" * size
                for _, size in turns
            ]
            body = {
                "messages": [
                    {"role": who, "content": own} for (who, _), own in zip(turns, parts, strict=True)
                ]
            }
            body |= (
                {"max_tokens": limit}
                if len(turns) % 2
                else {"max_completion_tokens": limit, "max_tokens": 77}
            )
            most = 77 if limit is None and len(turns) % 2 == 0 else most
            rows.append({"custom_id": str(number), "body": body} if inner else {"id": str(number), **body})
        before = len(expected)

        def tokens(at: int, turns=turns) -> int:
            if form == "sharegpt":
                return sum(size for _, size in turns[:at])
            images = 765 * sum(size % 2 for _, size in turns[:at])
            return len(chatml(*((who, "x" * size) for who, size in turns[:at]))) + images

        for at, (who, size) in enumerate(turns):
            if roles[who] and at:
                answer = tokens(at + 1) - tokens(at) - len(chatml((who, "")) if form == "openai" else "")
                expected.append((str(number), tokens(at), size if form == "sharegpt" else answer + 22))
        waits = most or assumed
        if turns and not roles[turns[-1][0]] and waits:
            expected.append((str(number), tokens(len(turns)), waits))
        silent += len(expected) == before
    path = written(tmp_path_factory.mktemp("t") / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    trace = read_report(
        path, settings=ReadSettings(format=form, bytes_per_token=1, answer_tokens=assumed)
    ).trace
    names = [trace.session_names[session] for session in trace.session]
    assert [*zip(names, trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True)] == expected
    assert any(f"{silent} conversations without an answer" in text for text in trace.warnings) == (silent > 0)


def test_conversations_of_one_name_or_without_any_are_sessions_of_their_own(tmp_path):
    """Every machine knows sessions by name: two of one name would be taken for one."""
    said = [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]
    unnamed = [{"conversations": said}] * 3
    path = written(tmp_path / "t.json", json.dumps([*unnamed, {"id": "line 1 #2", "conversations": said}]))
    names = read_trace(path).session_names
    assert names == ["line 1", "line 1 #2", "line 1 #3", "line 1 #2 #2"]


@pytest.mark.parametrize(
    "turns", ['[{"from": 1, "value": "v"}]', '[{"from": "gpt", "value": 1}]', '["x"]', "[null]", "{}"]
)
def test_bad_sharegpt_is_refused_or_skipped(tmp_path, turns):
    good = json.dumps(conversation("a", "x", "y"))
    path = written(tmp_path / "t.json", f'[{good},\n{{"conversations": {turns}}}]')
    with pytest.raises(TraceError, match=r":2: not a conversation"):
        read_trace(path)
    assert len(read_trace(path, settings=ReadSettings(on_bad_row="skip"))) == 1
    written(path, f"[{good},\n{good[:-9]}")
    with pytest.raises(TraceError, match=r":2:\d+: unterminated JSON"):
        read_trace(path)
