"""Access to a server: keys, origins, limits of bodies and of answers at a time, and its other routes."""

import asyncio

import pytest

pytest.importorskip("uvicorn")

from live_apps import LiveApp, live
from live_fleets import turns
from support.product.live import Serving

COMPLETIONS = "/v1/completions"


def test_every_route_but_health_needs_the_key(tmp_path):
    async def go(app: LiveApp) -> None:
        assert len(app.app.routes) == 12
        for route in app.app.routes:
            method = min(route.methods - {"HEAD"})
            keys = [f"Bearer {word}" for word in ("", "secre", "secrets", "Secret")]
            for headers in ({}, *({"authorization": key} for key in keys)):
                answer = await app.ask(route.path, method=method, headers=headers)
                is_open = route.path in ("/health", "/ping")
                assert answer.status == (200 if is_open else 401), (route.path, headers)
        allowed = {"authorization": "Bearer secret"}
        assert (await app.ask("/version", method="GET", headers=allowed)).status == 200
        far = {"host": "elsewhere", "origin": "http://elsewhere", **allowed}
        assert (await app.ask("/reset_prefix_cache", host="10.0.0.9", headers=far)).status == 200
        app.fleet.broken = RuntimeError()
        assert (await app.ask("/health", method="GET")).status == 503

    live(tmp_path, go, shutdown=lambda: None, serving=Serving(api_key="secret", shutdown_route=True))


@pytest.mark.parametrize(
    ("client", "host", "origin", "status"),
    [
        ("127.0.0.1", "127.0.0.1:80", None, 200),
        ("127.0.0.1", "localhost:80", "http://localhost:80", 200),
        ("::1", "[::1]:80", "http://[::1]:80", 200),
        ("127.0.0.1", "localhost:80", "http://localhost:81", 403),
        ("127.0.0.1", "localhost:80", "https://localhost:80", 403),
        ("127.0.0.1", "elsewhere", "http://elsewhere", 403),
        ("127.0.0.1", "elsewhere", None, 403),
        ("10.0.0.9", "localhost:80", None, 403),
    ],
)
def test_without_a_key_this_machine_alone_changes_state(tmp_path, client, host, origin, status):
    done = []

    async def go(app: LiveApp) -> None:
        headers = {"host": host, **({"origin": origin} if origin else {})}
        for path in ("/reset_prefix_cache", "/shutdown"):
            assert (await app.ask(path, host=client, headers=headers)).status == status
        assert (await app.ask("/version", method="GET", host=client, headers=headers)).status == 200

    live(tmp_path, go, shutdown=lambda: done.append(1), serving=Serving(shutdown_route=True))
    assert len(done) == (status == 200)


def test_a_body_may_be_as_long_as_the_limit_in_any_pieces(tmp_path):
    async def go(app: LiveApp) -> None:
        for size, status in ((40, 200), (41, 413)):
            body = b'{"prompt": "a"}'.ljust(size)
            for headers in ({}, {"content_length": str(size)}):
                for pieces in (1, 7):
                    answer = await app.ask("/tokenize", body, pieces=pieces, headers=headers)
                    assert answer.status == status

    live(tmp_path, go, serving=Serving(body_bytes=40))


async def load(app: LiveApp) -> int:
    return (await app.ask("/load", method="GET")).json["server_load"]


def test_as_many_answers_are_served_at_a_time_as_the_limit_says(tmp_path):
    async def go(app: LiveApp) -> None:
        def ask(n):
            return app.client(COMPLETIONS, {"prompt": "a", "n": n, "max_tokens": 3})

        two, more, one = ask(2), ask(2), ask(1)
        await turns()
        assert (more.status, await load(app)) == (429, 3)
        await app.passed(1000)
        assert (two.status, one.status, await load(app)) == (200, 200, 0)
        last = ask(1)
        await turns()
        app.fleet.abort(*app.fleet.open.values())
        await app.passed(1000)
        assert last.json["choices"][0]["finish_reason"] == "abort"
        assert await load(app) == 0

    live(tmp_path, go, serving=Serving(requests=3))


def test_a_request_that_meets_a_full_queue_is_refused_and_counted_apart(tmp_path):
    async def go(app: LiveApp) -> dict:
        first = app.client(COMPLETIONS, {"prompt": "a", "max_tokens": 3})
        await turns()
        second = await app.ask(COMPLETIONS, {"prompt": "b", "max_tokens": 3, "stream": True})
        assert (second.status, second.json["error"]["message"]) == (503, "the request queue is full")
        await app.passed(1000)
        third = await app.ask(COMPLETIONS, {"prompt": "c", "max_tokens": 3})
        assert (first.status, third.status) == (200, 200)
        return app.end()["requests"]

    overrides = ("replica.scheduler=vllm", "cache.semantics=vllm", "replica.max_num_queued_reqs=1")
    counts = live(tmp_path, go, *overrides)
    assert (counts["finished"], counts["turned_away"], counts["aborted"]) == (2, 1, 0)


def test_requests_that_come_while_a_text_is_tokenized_are_counted(tmp_path):
    """A long text is tokenized in a thread: of two of them, both found that one more request is served."""

    async def go(app: LiveApp) -> None:
        body = {"prompt": "a" * 70_000, "max_tokens": 3}
        both = [app.client(COMPLETIONS, body) for _ in range(2)]
        for _ in range(2000):  # 20 s
            if any(one.status for one in both):
                break
            await asyncio.sleep(0.01)
        await app.passed(1000)
        assert sorted(one.status for one in both) == [200, 429]

    live(tmp_path, go, "tiers.gpu.capacity=unbounded", serving=Serving(requests=1))


def test_a_simulation_that_fails_is_an_error_of_the_server(tmp_path):
    async def go(app: LiveApp) -> None:
        def fails(until_ns):
            raise ValueError("x")

        app.fleet.simulation.run_to = fails
        answer = app.client(COMPLETIONS, {"prompt": "a", "max_tokens": 3})
        with pytest.raises(ValueError, match="x"):
            await answer.task
        assert (answer.status, answer.json["error"]["type"]) == (500, "InternalServerError")
        assert (await app.ask("/health", method="GET")).status == 503

    live(tmp_path, go)
