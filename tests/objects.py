"""A real S3 endpoint for tests: moto's server, a process of its own, and a proxy that fails."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parent.parent
BUCKET = "bucket"


def moto_command() -> str:
    """Where moto's server is: its dependencies contradict ours, it lives in `.venv-moto`."""
    named = os.environ.get("MOTO_SERVER") or shutil.which("moto_server")
    found = named or str(ROOT / ".venv-moto" / "bin" / "moto_server")
    if not Path(found).is_file():
        pytest.skip("no moto_server; `make .venv-moto/ready` installs it, or set MOTO_SERVER")
    return found


@contextmanager
def s3_server() -> Iterator[str]:
    """Start an empty S3 with one bucket; yield its URL."""
    command = moto_command()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [command, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            deadline = time.monotonic() + 60
            while True:
                assert server.poll() is None
                assert time.monotonic() < deadline
                try:
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    connection.request("PUT", f"/{BUCKET}")
                    assert connection.getresponse().status == 200
                    break
                except ConnectionRefusedError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)


class Failing(ThreadingHTTPServer):
    """Hands requests on; answers every n-th write with an error (n = 1: all; 0: none)."""

    daemon_threads = True
    request_queue_size = 128  # workers write at the same time

    def __init__(self, target: str, every: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.every = urlsplit(target).netloc, every
        self.writes = self.failed = 0
        self.lock = threading.Lock()

    def fails(self) -> bool:
        with self.lock:
            self.writes += 1
            wrong = bool(self.every) and self.writes % self.every == 0
            self.failed += wrong
            return wrong

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Failing

    def _hand_on(self) -> None:
        body = self._body()
        if self.command in {"PUT", "POST"} and self.server.fails():
            self._answer(503, [], b"<Error><Code>ServiceUnavailable</Code></Error>")
            return
        connection = http.client.HTTPConnection(self.server.target, timeout=60)
        mine = {"transfer-encoding", "expect", "content-length"}  # the client sets them itself
        sent = {k: v for k, v in self.headers.items() if k.lower() not in mine}
        connection.request(self.command, self.path, body, sent)
        found = connection.getresponse()
        data = found.read()
        skipped = {"content-length", "transfer-encoding", "connection"}
        headers = [(k, v) for k, v in found.getheaders() if k.lower() not in skipped]
        length = found.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(found.status, headers, data, length)
        connection.close()

    def _body(self) -> bytes:
        """Read the whole body: the SDK sends uploads in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return found

    def _answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _hand_on  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def failing_proxy(target: str, every: int) -> Iterator[Failing]:
    with Failing(target, every) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join(10)
