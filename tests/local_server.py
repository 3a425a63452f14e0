"""A web server in a thread, which behaves as a test tells it to."""

import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Answers each request with the next behaviour, the last one for ever after."""

    def __init__(self, *behaviours: Callable):
        self.behaviours = list(behaviours)
        self.ranges: list[str | None] = []
        self.sent = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.ranges.append(self.headers["Range"])
                behave = outer.behaviours[0]
                if len(outer.behaviours) > 1:
                    outer.behaviours.pop(0)
                self.close_connection = True
                behave(self)

            def answer(self, status=200, **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()

            def body(self, content: bytes):
                try:
                    self.wfile.write(content)
                    self.wfile.flush()
                    outer.sent += len(content)
                except OSError:  # the client has enough
                    pass

            def begin(self) -> int:
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "bytes=0-")
                assert asked, self.headers["Range"]
                return int(asked[1])

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def has_sent(self, count: int) -> bool:
        """Say whether so many bytes were sent; a client may have the last before they count."""
        end = time.monotonic() + 10
        while self.sent < count and time.monotonic() < end:
            time.sleep(0.01)
        return self.sent == count

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
