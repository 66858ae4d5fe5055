"""A process of raybus imports what its work needs, wherever development tools are installed, too."""

import subprocess
import sys
from pathlib import Path

import pytest

from common.clock import SystemClock
from nats_admin.certificates import new_authority, new_server

UNWANTED = {
    "rich",
    "httpx",
    "click",
    "pygments",
    "cryptography",
    "kubernetes_asyncio",
    "opentelemetry",
    "aiohttp.web",
}


def imported(code: str) -> set[str]:
    report = f"print(*{UNWANTED!r} & {{name for name, module in sys.modules.items() if module is not None}})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "service", ["watcher", "cluster_reconciler", "service_reconciler", "traffic_manager"]
)
def test_a_service_imports_nothing_for_a_terminal_and_no_second_client(service: str) -> None:
    assert (
        imported(f"import runpy, sys\nrunpy.run_module('{service}', run_name='imported')") == set()
    )


def test_a_process_without_a_terminal_loads_the_systems_authorities_only_where_it_trusts_them() -> (
    None
):
    code = """
import os
os.environ["SSL_CERT_DIR"] = "/mine"
before = dict(os.environ)
import common.headless, aiohttp.connector
contexts = aiohttp.connector._SSL_CONTEXT_VERIFIED, aiohttp.connector._SSL_CONTEXT_UNVERIFIED
assert [each.get_ca_certs() for each in contexts] == [[], []]
assert dict(os.environ) == before"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_garbage_is_collected_once_the_work_begins() -> None:
    code = """
import gc, os, common.headless
from common.runtime import process
assert not gc.isenabled()
async def work(settings):
    assert gc.isenabled() and gc.get_freeze_count() > 0
assert process.run("test", work) == 0"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_read_of_tls_allocates_no_more_than_a_record(tmp_path: Path) -> None:
    now = SystemClock().now()
    authority = new_authority(now=now)
    server = new_server(authority, names=["nats"], now=now)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "both.pem").write_bytes(server.certificate + server.key)
    code = f"""
import contextlib, ssl, tracemalloc, common.headless
inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
serves = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
serves.load_cert_chain({str(tmp_path / "both.pem")!r})
asks = ssl.create_default_context(cafile={str(tmp_path / "ca.crt")!r})
server, client = serves.wrap_bio(outbound, inbound, server_side=True), asks.wrap_bio(inbound, outbound, server_hostname="nats")
for _ in range(3):
    for side in client, server:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
sent = bytes(40_000)
server.write(sent)
tracemalloc.start()
records = [client.read(262_144), client.read(262_144)]
assert [len(each) for each in records] == [16_384, 16_384], records
records.append(client.read(262_144))
assert b"".join(records) == sent
assert tracemalloc.get_traced_memory()[1] < 131_072, tracemalloc.get_traced_memory()
assert client.pending() == 0
with contextlib.suppress(ssl.SSLWantReadError):
    client.read(262_144)
    raise AssertionError"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_keeps_the_streams_imports_nothing_to_make_certificates_with() -> None:
    begin = "import sys, nats_admin.provision, common.headless"
    assert imported(f"{begin}, common.runtime.process, nats_admin.stream_keeper") == set()


def test_the_command_line_keeps_its_terminal() -> None:
    assert "rich" in imported("import sys, raybus_cli.main, rich.console")
