"""A process of raybus imports what its work needs, wherever development tools are installed, too."""

import subprocess
import sys

import pytest

UNWANTED = {"rich", "httpx", "click", "pygments", "cryptography", "kubernetes_asyncio", "opentelemetry", "aiohttp.web"}


def imported(code: str) -> set[str]:
    report = f"print(*{UNWANTED!r} & {{name for name, module in sys.modules.items() if module is not None}})"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("service", ["watcher", "cluster_reconciler", "service_reconciler", "traffic_manager"])
def test_a_service_imports_nothing_for_a_terminal_and_no_second_client(service: str) -> None:
    assert imported(f"import runpy, sys\nrunpy.run_module('{service}', run_name='imported')") == set()


def test_a_process_without_a_terminal_loads_the_systems_authorities_only_where_it_trusts_them() -> None:
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


def test_what_keeps_the_streams_imports_nothing_to_make_certificates_with() -> None:
    begin = "import sys, nats_admin.provision, common.headless"
    assert imported(f"{begin}, common.runtime.process, nats_admin.stream_keeper") == set()


def test_the_command_line_keeps_its_terminal() -> None:
    assert "rich" in imported("import sys, raybus_cli.main, rich.console")
