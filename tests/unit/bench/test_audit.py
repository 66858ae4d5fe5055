"""The requests of an operator, counted from the audit log."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from bench import scale_up
from bench.audit import AuditLog
from support.fakes.virtual_time import run


def test_a_request_through_the_proxy_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    proxied = {
        "verb": "get",
        "userAgent": "raybus-job-reconciler",
        "objectRef": {"resource": "services", "subresource": "proxy"},
    }
    lines = [{**proxied, "stage": stage} for stage in ("ResponseStarted", "ResponseComplete")]
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    assert AuditLog(log).since(0).by_kind == {"get services/proxy": 1}


def a_write() -> bytes:
    line = {
        "verb": "patch",
        "userAgent": "raybus-job-reconciler",
        "objectRef": {"resource": "rayjobs", "subresource": "status"},
    }
    return msgspec.json.encode(line) + b"\n"


async def write_each_second(log: Path, *, seconds: float) -> None:
    """Append a write each second for some seconds."""
    for _ in range(int(seconds)):
        with log.open("ab") as lines:
            lines.write(a_write())
        await asyncio.sleep(1)


def test_an_operator_is_at_rest_when_it_writes_nothing_any_more(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.touch()

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(write_each_second(log, seconds=20))
            await scale_up.wait_until_no_writes(AuditLog(log))
        assert asyncio.get_running_loop().time() == 3 * scale_up.SETTLING

    run(scenario())


def test_an_operator_that_never_rests_ends_the_benchmark(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.touch()

    async def scenario() -> None:
        with pytest.RaisesGroup(TimeoutError):
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(
                    write_each_second(log, seconds=2 * scale_up.SETTLING_TIMEOUT)
                )
                try:
                    await scale_up.wait_until_no_writes(AuditLog(log))
                finally:
                    writing.cancel()
        assert asyncio.get_running_loop().time() == scale_up.SETTLING_TIMEOUT

    run(scenario())
