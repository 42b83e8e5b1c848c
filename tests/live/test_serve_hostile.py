"""`kvsim serve` with hostile clients and clients that hang up or do not read: refusals, and no leaks."""

import contextlib
import json
import re
import socket
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kvcache_sim.cli.main import run as command
from live_server import LiveServer, live_server

pytest.importorskip("uvicorn")

#: A minute's traffic here must not take more, in KiB: what a leak of each body or stream would.
MOST_KIB = 60 << 10
LONGEST_S = 30.0


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    options = ("-c", "preset:one-gpu", "--speed", "50", "--max-body", "16")
    with live_server(tmp_path_factory.mktemp("live") / "run", *options) as server:
        ask(server, b'{"prompt": "warm", "max_tokens": 4, "stream": true}')
        yield server


def connected(server: LiveServer) -> socket.socket:
    parts = urlsplit(server.url)
    own = socket.create_connection((parts.hostname, parts.port), timeout=LONGEST_S)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return own


def head(size: int, *lines: str) -> bytes:
    fixed = ("POST /v1/completions HTTP/1.1", "Host: a", f"Content-Length: {size}")
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def ask(server: LiveServer, body: bytes) -> bytes:
    with connected(server) as own:
        own.sendall(head(len(body), "Connection: close") + body)
        return all_of(own)


def all_of(own: socket.socket) -> bytes:
    pieces = []
    with contextlib.suppress(OSError):
        while piece := own.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def answer_to(server: LiveServer, data: bytes) -> tuple[int, dict]:
    """Send bytes and nothing more; return the status and the error's body."""
    with connected(server) as own:
        with contextlib.suppress(OSError):
            own.sendall(data)
            own.shutdown(socket.SHUT_WR)
        whole = all_of(own)
    status, _, body = whole.partition(b"\r\n\r\n")
    return int(status.split()[1]), json.loads(body)["error"]


def get(server: LiveServer, path: str) -> str:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=LONGEST_S) as answer:
        return answer.read().decode()


def gauge(server: LiveServer, name: str) -> float:
    found = re.search(rf"^vllm:{name}{{[^}}]*}} (\S+)$", get(server, "/metrics"), re.MULTILINE)
    assert found is not None
    return float(found[1])


def of_process(server: LiveServer) -> tuple[int, int]:
    """Return open files and resident KiB."""
    index = Path(f"/proc/{server.process.pid}")
    resident = re.search(r"VmRSS:\s+(\d+)", (index / "status").read_text())
    assert resident is not None
    return len(list((index / "fd").iterdir())), int(resident[1])


def settled(server: LiveServer, files: int) -> None:
    """Wait until no request is served, no block is in use and as many files are open as before."""
    until = time.monotonic() + LONGEST_S
    while True:
        now = (
            json.loads(get(server, "/load"))["server_load"],
            gauge(server, "num_requests_running"),
            gauge(server, "num_requests_waiting"),
            gauge(server, "kv_cache_usage_perc"),
        )
        if now == (0, 0, 0, 0) and of_process(server)[0] <= files:
            return
        assert time.monotonic() < until, (now, of_process(server)[0], files)
        time.sleep(0.05)


@pytest.fixture
def stays(served):
    """Check that a test leaves no open file, request or memory behind."""
    files, resident = of_process(served)
    yield
    settled(served, files)
    assert of_process(served)[1] - resident < MOST_KIB


def post(body: bytes) -> bytes:
    return head(len(body)) + body


def completion(**more: object) -> bytes:
    return post(json.dumps({"prompt": "a", **more}).encode())


NO_LENGTH = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
CHUNKED = NO_LENGTH + b"Transfer-Encoding: chunked\r\n\r\n"
BAD = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 200, 400),
    "a word": (b"hello\r\n\r\n", 400),
    "no length": (NO_LENGTH + b"Content-Length: many\r\n\r\n", 400),
    "negative length": (NO_LENGTH + b"Content-Length: -5\r\n\r\n{}", 400),
    "two lengths": (head(2, "Content-Length: 3") + b"{}", 400),
    "length and chunks": (head(2, "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "chunk of no number": (CHUNKED + b"zz\r\n", 400),
    "path that is no ASCII": ("GET /v1/é HTTP/1.1\r\nHost: a\r\n\r\n".encode(), 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (head(2, "Host: a") + b"{}", 400),
    "two hosts of 1.0": (b"GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "a host of two words": (b"GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "a host with a path": (b"GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "no host, and a body": (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400),
    "long path": (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    "long header": (head(0, "X-Long: " + "a" * 2_000_000), 431),
    "many headers": (head(0, *(f"X-{n}: {n}" for n in range(100_000))), 431),
    "headers that do not end": (head(0)[:-4] + b"\r\nX-A: b" * 300_000, 431),
    "too long by its length": (head(17 << 20), 413),
    "too long in chunks": (CHUNKED + (b"%x\r\n%s\r\n" % (1 << 20, b"a" * (1 << 20))) * 40, 413),
    "no JSON": (post(b"{,}"), 400),
    "bad UTF-8": (post(b'{"prompt": "\xff"}'), 400),
    "deep": (post(b'{"prompt":' + b"[" * 200_000 + b"]" * 199_999 + b"}"), 400),
    "deep in a message": (post((b'{"messages":' + b'[{"role":' * 60_000).ljust(600_000, b"[")), 400),
    "a huge number": (post(b'{"prompt":"a","max_tokens":9' + b"9" * 39_999 + b"}"), 400),
    "a negative number": (completion(max_tokens=-1), 400),
    "no such n": (completion(n=-3), 400),
    "too many answers": (completion(n=99999), 400),
    "tokens that are no numbers": (completion(prompt=[1, None]), 400),
    "negative tokens": (completion(prompt=[1, -99]), 400),
    "too many tokens asked": (completion(max_tokens=2147483647), 400),
}


@pytest.mark.parametrize("name", BAD)
def test_hostile_bytes_are_refused_with_an_error_of_openai(served, stays, name):
    data, wanted = BAD[name]
    status, error = answer_to(served, data)
    assert status == wanted, error
    assert error["code"] == wanted
    assert error["message"]


@pytest.mark.parametrize("line", ["HTTP/1.0\r\n", "HTTP/1.1\r\nHost:\r\n", "HTTP/1.1\r\nHost: [::1]:80\r\n"])
def test_a_request_with_its_one_host_or_an_old_one_without_is_served(served, line):
    with connected(served) as own:
        own.sendall(f"GET /health {line}Connection: close\r\n\r\n".encode())
        assert all_of(own).split(b" ", 2)[1] == b"200"


def test_a_body_that_never_ends_leaves_when_its_client_does(served, stays):
    for sent in (b"", b'{"prompt": "a', b"x" * 500_000):
        with connected(served) as own:
            own.sendall(head(1_000_000) + sent)


def test_dropped_streams_are_aborted_and_free_their_blocks(served, stays):
    for count in range(30):
        body = b'{"prompt": "%d", "max_tokens": 5000, "stream": true, "n": 2}' % count
        with connected(served) as own:
            own.sendall(head(len(body)) + body)
            if count % 3:
                assert own.recv(1)
            if count % 2:  # a reset instead of an end
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    settled(served, 1000)
    aborted = re.search(
        r'request_success_total{[^}]*finished_reason="abort"[^}]*} (\S+)', get(served, "/metrics")
    )
    assert aborted is not None
    assert float(aborted[1]) >= 60


def test_clients_that_do_not_read_hold_their_connection_and_little_else(served, stays):
    before = of_process(served)[1]
    stalled = []
    for count in range(6):
        own = connected(served)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = b'{"prompt": "%d", "max_tokens": 20000, "stream": true}' % count
        own.sendall(head(len(body), "Connection: close") + body)
        stalled.append(own)
    until = time.monotonic() + LONGEST_S
    while gauge(served, "num_requests_running") and time.monotonic() < until:
        time.sleep(0.2)  # the simulated requests end even if no client reads
    assert gauge(served, "kv_cache_usage_perc") == 0
    assert of_process(served)[1] - before < MOST_KIB
    assert b'"finish_reason":"length"' not in stalled[0].recv(1 << 12)
    whole = all_of(stalled.pop())
    assert whole.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    said = re.findall(rb'"text":"((?:[^"\\]|\\.)*)"', re.sub(rb"\r\n[0-9a-f]+\r\n", b"", whole))
    assert sum(map(len, said)) >= 20_000 - 4096
    for own in stalled:
        own.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    options = ("-c", "preset:one-gpu", "--speed", "50", "--max-requests", "64")
    with live_server(tmp_path_factory.mktemp("small") / "run", *options) as server:
        ask(server, b'{"prompt": "warm", "max_tokens": 4, "stream": true}')
        yield server


GREEDY = {
    "94 bytes": b'{"prompt":[[1],[1],[1],[1],[1],[1],[1],[1],[1],[1]],"n":128,"max_tokens":100000}',
    "294 bytes": b'{"prompt":[' + b",".join([b"[1]"] * 60) + b'],"n":128,"max_tokens":100000}',
    "0.1 MB of prompts": b'{"max_tokens":1,"n":128,"prompt":[' + b",".join([b'"a"'] * 25_000) + b"]}",
    "0.1 MB of text, 128 times": b'{"max_tokens":1,"n":128,"echo":true,"prompt":"' + b"a" * 100_000 + b'"}',
    "the rest of the context, 60 times": b'{"n":60,"messages":[{"role":"user","content":"a"}]}',
}


@pytest.mark.parametrize("name", GREEDY)
def test_work_is_counted_before_it_is_done(small, name):
    body, resident = GREEDY[name], of_process(small)[1]
    route = "chat/completions" if b"messages" in body else "completions"
    began = time.monotonic()
    status, error = answer_to(small, head(len(body)).replace(b"completions", route.encode()) + body)
    assert time.monotonic() - began < LONGEST_S
    assert (status, error["code"]) in ((400, 400), (429, 429))
    assert of_process(small)[1] - resident < 10 << 10


def test_long_answers_are_drawn_as_they_are_sent(small):
    """60 answers of 30,000 tokens: 1.8 million tokens would be 29 MB of lists."""
    resident = of_process(small)[1]
    body = b'{"prompt":[1],"n":60,"max_tokens":30000,"stream":true}'
    with connected(small) as own:
        own.sendall(head(len(body)) + body)
        assert own.recv(1 << 10).startswith(b"HTTP/1.1 200")
        assert of_process(small)[1] - resident < 24 << 10
    settled(small, 1 << 10)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_port_that_is_taken_is_refused(tmp_path, monkeypatch, capsys, host):
    monkeypatch.chdir(tmp_path)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as taken:
        taken.bind((host, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert command(["serve", "-c", "preset:one-gpu", "-q", "--host", host, "--port", port]) == 2
    assert "cannot listen there" in capsys.readouterr().err
