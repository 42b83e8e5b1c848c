"""`kvsim serve` as its clients see it, and what it leaves: the openai package and plain HTTP, on loopback."""

import asyncio
import http.client
import json
import signal
from urllib.parse import urlsplit

import pytest
from live_server import digests, live_server, replayed

openai = pytest.importorskip("openai")
pytest.importorskip("uvicorn")

FAST = ("--set", "replica.max_model_len=4096", "--speed", "20")
LONG = "word by word the prompt is made longer " * 40


def client(url: str, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=30)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def exchange(url: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with live_server(tmp_path_factory.mktemp("live") / "run", "-c", "preset:cpu-offload", *FAST) as server:
        yield server


def test_a_chat_answers_max_tokens_and_reports_cached_tokens(served):
    api = client(served.url)
    ask = {"model": "llama-3.1-8b", "messages": chat("one " + LONG), "max_tokens": 24}
    first = api.chat.completions.create(**ask)
    again = api.chat.completions.create(**ask)
    assert first.choices[0].finish_reason == "length"
    assert first.usage.completion_tokens == 24
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    block = 16
    assert again.usage.prompt_tokens_details.cached_tokens == (again.usage.prompt_tokens - 1) // block * block


def test_the_next_turn_of_a_chat_finds_the_answer_of_the_last_one(served):
    api = client(served.url)
    said = chat("two " + LONG)
    answer = api.chat.completions.create(model="llama-3.1-8b", messages=said, max_tokens=64)
    reply = answer.choices[0].message.content
    said += [{"role": "assistant", "content": reply}, {"role": "user", "content": "go on"}]
    following = api.chat.completions.create(model="llama-3.1-8b", messages=said, max_tokens=8)
    covered = answer.usage.prompt_tokens + 64 - 1  # the last token has no KV
    assert following.usage.prompt_tokens_details.cached_tokens == covered // 16 * 16


def test_tokenize_counts_bytes_and_detokenize_returns_them(served):
    status, answer = exchange(served.url, "POST", "/tokenize", '{"prompt": "añb"}'.encode())
    reported = json.loads(answer)
    assert (status, reported["count"], reported["max_model_len"]) == (200, 4, 4096)
    body = json.dumps({"tokens": reported["tokens"]}).encode()
    assert json.loads(exchange(served.url, "POST", "/detokenize", body)[1]) == {"prompt": "añb"}


def test_a_reset_empties_the_cache(served):
    api, ask = client(served.url), {"model": "llama-3.1-8b", "prompt": "reset " + LONG, "max_tokens": 2}
    api.completions.create(**ask)
    assert api.completions.create(**ask).usage.prompt_tokens_details.cached_tokens > 0
    assert json.loads(exchange(served.url, "POST", "/reset_prefix_cache")[1]) == {"success": True}
    assert api.completions.create(**ask).usage.prompt_tokens_details.cached_tokens == 0


async def _many(url: str, requests: int, tokens: int = 200) -> list[object]:
    api = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=30)
    ask = {"model": "llama-3.1-8b", "max_tokens": tokens}
    sent = [api.completions.create(prompt=f"{n} {LONG}", **ask) for n in range(requests)]
    return await asyncio.gather(*sent, return_exceptions=True)


async def _traffic(urls: list[str]) -> None:
    """Chats of some turns, side by side; every third client hangs up in the middle."""

    async def talk(number: int) -> None:
        url = urls[number % len(urls)]
        api = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=30)
        said = chat(f"{number % 4} {LONG}")
        for turn in range(3):
            leaves = number % 3 == 2 and turn == 1
            stream = await api.chat.completions.create(
                model="llama-3.1-8b", messages=said, max_tokens=3000 if leaves else 60 + number, stream=True
            )
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if leaves and len(text) > 9:
                    await stream.close()
                    return
            said = [
                *said,
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"turn {turn}"},
            ]

    await asyncio.gather(*(talk(number) for number in range(12)))


SCENARIOS = {
    "tiers": ("-c", "preset:cpu-offload", "--set", "tiers.gpu.capacity=900 blocks"),
    "two machines": ("-c", "preset:two-machines", "--set", "router.policy=longest-prefix"),
    "vllm": ("-c", "preset:one-gpu", "--set", "cache.semantics=vllm", "--set", "replica.scheduler=vllm"),
    "asynchronous": ("-c", "preset:one-gpu", "--set", "replica.async_scheduling=stop-token"),
    "pools": ("-c", "preset:pd-disagg"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_replay_of_the_arrivals_decides_as_the_live_run_did(tmp_path, name):
    with live_server(tmp_path / "live", *SCENARIOS[name], "--speed", "3") as server:
        asyncio.run(_traffic(server.urls))
        run = server.stop(signal.SIGINT)
    requests = json.loads((run / "summary.json").read_text())["requests"]
    assert requests["arrived"] == 12 * 3 - 4
    assert requests["aborted"] == 4
    assert digests(run) == replayed(run, tmp_path / "again", "--check", "full")


def test_open_requests_are_given_up_at_the_end_and_the_replay_agrees(tmp_path):
    with live_server(tmp_path / "live", "-c", "preset:one-gpu", "--shutdown-route") as server:

        async def leave() -> None:
            sent = asyncio.create_task(_many(server.url, 4, 2000))
            while json.loads((await asyncio.to_thread(exchange, server.url, "GET", "/load"))[1]) != {
                "server_load": 4
            }:
                await asyncio.sleep(0.05)
            exchange(server.url, "POST", "/shutdown")
            await sent

        asyncio.run(leave())
        assert server.process.wait(30) == 0
    summary = json.loads((tmp_path / "live" / "summary.json").read_text())
    assert summary["requests"]["aborted"] == 4
    assert digests(tmp_path / "live") == replayed(tmp_path / "live", tmp_path / "again")


def test_each_machine_has_a_port_of_its_own_where_asked(tmp_path):
    options = ("-c", "preset:two-machines", "--port-per-machine", "--speed", "20")
    with live_server(tmp_path / "live", *options, ports=2) as server:
        for _ in range(3):
            client(server.urls[1]).completions.create(model="llama-3.1-8b", prompt=LONG, max_tokens=2)
        run = server.stop()
    assert [row["machine"] for row in rows(run)] == [1, 1, 1]
    assert all(urlsplit(url).port >= 1024 for url in server.urls)  # each chosen by the system


def test_a_server_without_requests_leaves_a_run_of_no_requests(tmp_path):
    with live_server(tmp_path / "live", "-c", "preset:one-gpu") as server:
        run = server.stop()
    assert json.loads((run / "summary.json").read_text())["requests"]["arrived"] == 0
    assert (run / "arrivals.jsonl").read_bytes() == b""
    assert rows(run, "lag") == []


def rows(run, table="requests"):
    import pyarrow.parquet as pq

    return pq.read_table(run / f"{table}.parquet").to_pylist()
