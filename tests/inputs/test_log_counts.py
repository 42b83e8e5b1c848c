"""A log's own token counts: what each vendor means by them, and what its texts explain of them."""

import json
import re

import pytest
from kvcache_sim.cli.main import run
from kvcache_sim.workload.prompts.usage import usage_of
from support.shared_files import shared
from support.unbounded_rows import unbounded_hits

#: Counts of a log, and the tokens of its prompt, of its answer and cached.
USAGES = """
{"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}} → 100, 5, 64
{"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": null} → 100, 5, null
{"input_tokens": 100, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 64}} → 100, 5, 64
{"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 40} → 103, 5, 60
{"input_tokens": 3, "cache_creation": {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 7}} → 50,null,null
{"input_tokens": 3, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0} → 3, null, 0
{"inputTokens": 3, "outputTokens": 5, "cacheReadInputTokens": 60, "cacheWriteInputTokens": 40} → 103, 5, 60
{"prompt_tokens": 31, "prompt_tokens_details": {"cached_tokens": 253}, "cache_read_input_tokens": 253} → 284, null, 253
{"prompt_tokens": 31, "cache_creation_input_tokens": 1400, "cache_read_input_tokens": 0} → 1431, null, 0
{"prompt_tokens": 1431, "cache_creation_input_tokens": 400, "cache_read_input_tokens": 1000} → 1431, null, 1000
{"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5} → 9, null, 4
{"promptTokenCount": 9, "cachedContentTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 6} → 9, 10, 3
{} → null, null, null
"""


@pytest.mark.parametrize("line", USAGES.strip().splitlines())
def test_counts_mean_what_their_vendor_says(line):
    counts, _, tokens = line.partition(" → ")
    assert usage_of(None, json.loads(counts)) == tuple(json.loads(f"[{tokens}]"))


def imported(path, rows, capsys, *options):
    """Return the rows of a log's trace, its hits in an unbounded cache, and what is said."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = path.with_suffix(".trace")
    assert run(["trace", "import", str(path), "-o", str(out), *options]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    return found, unbounded_hits(found, 16), " ".join(capsys.readouterr().err.split())


def chat(number, texts, counted, images=()):
    """Return a chat of a system text and a question; its 13 tokens of markers are counted too."""
    content = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    content.append({"type": "text", "text": texts[1]})
    messages = [{"role": "system", "content": texts[0]}, {"role": "user", "content": content}]
    usage = {} if counted is None else {"usage": {"prompt_tokens": counted + 13, "completion_tokens": 1}}
    return {"time": 100 + number, "messages": messages, "max_tokens": 1, **usage}


@pytest.mark.parametrize("size", [3, 5])
def test_bytes_a_token_are_those_of_the_counts(size, tmp_path, capsys):
    """600 and 60 bytes: 600 ÷ size tokens and markers of 3, 2 and 3 are shared, in blocks of 16."""
    rows = [chat(n, ("s" * 600, f"{n}" * 60), 660 // size) for n in range(3)]
    found, hits, said = imported(tmp_path / "l", rows, capsys)
    assert [row["input_length"] for row in found] == [660 // size + 13] * 3
    shared_tokens = (600 // size + 8) // 16 * 16
    assert hits == [0, shared_tokens, shared_tokens]
    assert f"{size:.2f} bytes a token by the counts of 3 requests" in said
    assert "% of the" not in said
    assert [own for own, _ in found[0]["segments"]] == ["system", "user"]
    assert sum(tokens for _, tokens in found[0]["segments"]) == 660 // size + 13


def test_the_given_bytes_a_token_count_whatever_the_log_says(tmp_path, capsys):
    rows = [chat(n, ("s" * 600, f"{n}" * 60), 132) for n in range(3)]
    _, _, said = imported(tmp_path / "l", rows, capsys, "--bytes-per-token", "3")
    assert "bytes a token: 3" in said
    assert "% of the 435 counted prompt tokens are unexplained" in said


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (1650, r"89 % of the 4,989 counted prompt tokens are not in the texts"),
        (40, r"2\d\d % of the 159 .* unexplained"),
    ],
)
def test_counts_that_texts_do_not_explain_are_said(counted, words, tmp_path, capsys):
    """660 bytes for 1,650 tokens or for 40: no text has so few bytes a token, or so many."""
    rows = [chat(n, ("s" * 600, f"{n}" * 60), counted) for n in range(3)]
    found, _, said = imported(tmp_path / "l", rows, capsys)
    assert re.search(words, said)
    assert "estimated at 4 bytes a token" in said
    assert all(row["input_length"] == counted + 13 for row in found)


def test_an_image_has_the_tokens_that_the_counts_leave_and_text_behind_another_is_not_shared(
    tmp_path, capsys
):
    """A plain chat has 4 bytes a token, and images 100 tokens: 150 + 3 before the image, 15 + 2 behind."""
    rows = [chat(0, ("s" * 600, "0" * 60), 165)]
    rows += [chat(n, ("s" * 600, "q" * 60), 265, [url]) for n, url in enumerate("aab", start=1)]
    _, hits, said = imported(tmp_path / "l", rows, capsys)
    assert "an image has 100 tokens by the log's counts" in said
    assert "3 image_url parts are not rendered" in said
    # of 150 + 8 tokens up to the image; the whole of 278 but a part of a block
    assert hits == [0, 144, 272, 144]


def test_an_answer_is_named_where_the_next_prompt_repeats_it(tmp_path, capsys):
    first = {"role": "user", "content": "q" * 400}
    answer = {"role": "assistant", "content": "a" * 400}
    usages = (
        {"prompt_tokens": 108, "completion_tokens": 100},
        {"prompt_tokens": 318, "completion_tokens": 1},
    )
    rows = [
        {"time": 1, "messages": [first], "response": {"choices": [{"message": answer}]}, "usage": usages[0]},
        {"time": 2, "messages": [first, answer, first], "max_tokens": 1, "usage": usages[1]},
    ]
    found, _, _ = imported(tmp_path / "l", rows, capsys)
    shared_ids = [
        one for one, other in zip(found[0]["hash_ids"], found[1]["hash_ids"], strict=False) if one == other
    ]
    assert found[0]["named_length"] == 208
    assert len(shared_ids) == 208 // 16  # more than the 6 blocks of the first prompt


CASES = """
    openai_chat.jsonl openai_chat_tools.jsonl openai_chat_images.jsonl openai_chat_functions.jsonl
    anthropic_messages.jsonl anthropic_tools.jsonl litellm_standard_payload.jsonl
""".split()


@pytest.mark.parametrize("name", CASES)
def test_given_logs_have_the_expected_figures(name, tmp_path, capsys):
    case = next(own for own in json.loads(shared("logs/expected.json").read_text()) if own["file"] == name)
    rows = [json.loads(line) for line in shared(f"logs/{name}").read_text().splitlines()]
    found, hits, said = imported(tmp_path / name, rows, capsys)
    assert len(found) == case["rows"]
    for member, total in (
        ("input_length", "input_tokens"),
        ("output_length", "output_tokens"),
        ("cached_tokens", "cached_tokens"),
    ):
        assert sum(row[member] for row in found) == case[total]
    low, high = case["hit_tokens"]
    assert low <= sum(hits) <= high
    for row, (least, most) in case.get("row_hits", {}).items():
        assert least <= hits[int(row)] <= most
    assert hits[-1] <= case.get("last_row_hits", (0, hits[-1]))[1]
    assert all(re.search(words, said) for _, words in case["must_say"])
