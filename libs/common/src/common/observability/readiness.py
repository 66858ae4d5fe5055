"""`python -m common.observability.readiness URL…` waits until servers are ready.

`helm test` runs it in a pod without a token. A URL is `http://HOST:PORT/readyz` of a service, or
`nats://HOST:PORT` of a NATS server, which greets each client. One line is printed for each server.
Exit code 0 if all are ready, 1 if one is not within the time limit, 2 for a malformed URL.
"""

import http.client
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

TIMEOUT: Final = 60.0
"""Seconds after which servers that are not ready are reported."""
INTERVAL: Final = 1.0
"""Seconds between two requests to the same server."""
ANSWER_TIMEOUT: Final = 3.0
"""Seconds that one request may take."""
MAX_TEXT: Final = 500
"""Maximum length of a problem that a service reports, in bytes."""
NATS_GREETING: Final = b"INFO "
"""The first bytes that a NATS server sends, before TLS begins."""


def find_problem(url: str) -> str | None:
    """Ask a server once; return why it is not ready, or None if it is."""
    parts = urlsplit(url)
    try:
        return _ask_nats(parts) if parts.scheme == "nats" else _ask_http(parts)
    except (OSError, http.client.HTTPException) as error:
        return f"no ready replica answers: {error or type(error).__name__}"


def _ask_http(parts: SplitResult) -> str | None:
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=ANSWER_TIMEOUT
    )
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        text = answer.read(MAX_TEXT).decode(errors="replace").strip()
    finally:
        connection.close()
    return None if answer.status == http.client.OK else text or f"HTTP {answer.status}"


def _ask_nats(parts: SplitResult) -> str | None:
    address = (parts.hostname or "", parts.port)
    with socket.create_connection(address, timeout=ANSWER_TIMEOUT) as connection:
        greeting = connection.recv(len(NATS_GREETING))
    return None if greeting == NATS_GREETING else "it does not greet as NATS does"


def wait_until_ready(
    urls: Sequence[str],
    *,
    timeout: float = TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[str, str | None]]:
    """Yield each URL once, with the problem of its server.

    The problem is None if the server became ready, and the URL is then yielded at once. The
    remaining URLs follow at the time limit. `timeout` is in seconds, for all servers together.
    """
    deadline = clock() + timeout
    waiting = list(urls)
    while True:
        problems = {url: find_problem(url) for url in waiting}
        yield from ((url, None) for url, problem in problems.items() if problem is None)
        waiting = [url for url, problem in problems.items() if problem is not None]
        if not waiting:
            return
        if clock() >= deadline:
            yield from ((url, problems[url]) for url in waiting)
            return
        sleep(INTERVAL)


def main(urls: Sequence[str]) -> int:
    """Wait for the servers, and print a line for each; return the exit code."""
    for url in urls:
        if not _is_valid(url):
            sys.stderr.write(f"{url}: write http://HOST:PORT/readyz or nats://HOST:PORT\n")
            return 2
    is_ready = True
    for url, problem in wait_until_ready(urls):
        is_ready = is_ready and problem is None
        sys.stdout.write(f"{urlsplit(url).hostname}: {problem or 'ready'}\n")
        sys.stdout.flush()
    return 0 if is_ready else 1


def _is_valid(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "nats"} and bool(parts.hostname and parts.port)
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
