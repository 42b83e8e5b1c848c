"""A real headless browser for tests: the system's chromium, driven offline."""

import functools
import http.server
import shutil
import threading
from contextlib import contextmanager

import pytest


def chromium_path():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no chromium here; on Debian: apt-get install chromium")


@contextmanager
def page(**context):
    """Yield a page and the list its console errors, page errors and network requests are gathered in."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    executable = chromium_path()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        opened = browser.new_context(**context).new_page()
        trouble = []
        opened.on("console", lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None)
        opened.on("pageerror", lambda error: trouble.append(str(error)))
        opened.on(
            "request",
            lambda r: (
                trouble.append(r.url) if not r.url.startswith(("file:", "data:", "http://127.")) else None
            ),
        )
        try:
            yield opened, trouble
        finally:
            browser.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextmanager
def served(directory):
    """Serve a folder on this machine alone and yield its address."""
    handler = functools.partial(_Quiet, directory=str(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
