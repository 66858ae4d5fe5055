"""Credentials are renewed when they expire, when their files change, and when they are refused."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from common import errors
from common.kube import credentials, rest_config
from common.kube.client import LARGE_BODY, KubeClient
from common.kube.resources import POD
from localcluster import kubeconfig
from support.servers.loopback import served
from support.tables import cases

API = "client.authentication.k8s.io/v1"


class Watch:
    """A clock for the credentials, set by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.seconds)

    def steady(self) -> float:
        return self.seconds


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    for module in (credentials, rest_config):
        monkeypatch.setattr(module, "steady", watch.steady)
    monkeypatch.setattr(credentials, "SystemClock", lambda: watch)
    return watch


class Plugin:
    """A program that prints the credentials in a file, and counts its runs."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        self._status = folder / "status"
        self.asked = folder / "asked"
        self.program = folder / "plugin"
        self.program.write_text(
            f"#!/bin/sh\necho >> {self._runs}\n"
            f'printf "%s" "$KUBERNETES_EXEC_INFO" > {self.asked}\n'
            f"cat {self._status} || exit 3\n"
        )
        self.program.chmod(0o700)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0

    def print(self, *, api_version: str = API, **status: Any) -> None:
        body = {"kind": "ExecCredential", "apiVersion": api_version, "status": status}
        self._status.write_text(json.dumps(body))

    def fail(self) -> None:
        self._status.unlink(missing_ok=True)

    def user(self, **more: Any) -> dict[str, Any]:
        return {"exec": {"apiVersion": API, "command": str(self.program), **more}}


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def written(file: Path, *, user: dict[str, Any], server: str = "http://h:1", **more: Any) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **more}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


class Server:
    """An API server that accepts one token, and records the headers of all requests."""

    def __init__(self) -> None:
        self.admitted = ""
        self.seen: list[list[tuple[str, str]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(list(request.headers.items()))
        if request.headers.get("Authorization") != f"Bearer {self.admitted}":
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        return web.json_response({"method": request.method, "body": await request.text()})

    @property
    def shown(self) -> list[str]:
        return [value for seen in self.seen for name, value in seen if name == "Authorization"]


@asynccontextmanager
async def reached(server: Server, file: Path, user: dict[str, Any]) -> AsyncGenerator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server.answer)
    async with served(app) as port:
        written(file, user=user, server=f"http://127.0.0.1:{port}")
        kube = await KubeClient.connect(kubeconfig=file, user_agent="test")
        try:
            yield kube
        finally:
            await kube.close()


async def shown_by(config: rest_config.RestConfig) -> str | None:
    return dict((await config.credentials.get_identity()).headers).get("Authorization")


async def get(kube: KubeClient) -> None:
    await kube.get(POD, "ns", "a")


async def test_a_plugin_runs_again_when_its_credentials_have_expired(
    tmp_path: Path, plugin: Plugin, watch: Watch
) -> None:
    expires = watch.now() + timedelta(minutes=15)
    plugin.print(token="one", expirationTimestamp=expires.isoformat())
    file = written(tmp_path / "config", user=plugin.user())
    config = await rest_config.load(kubeconfig=file)
    plugin.print(token="two")
    watch.seconds = 899.0
    assert (await shown_by(config), plugin.runs) == ("Bearer one", 1)
    watch.seconds = 900.0
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shown_by(config)) for _ in range(5)]
    assert ({task.result() for task in tasks}, plugin.runs) == ({"Bearer two"}, 2)
    watch.seconds += 1e9
    assert (await shown_by(config), plugin.runs) == ("Bearer two", 2)


@pytest.mark.parametrize("is_stream", [False, True], ids=["a request", "a watch"])
async def test_a_refused_token_is_renewed_and_the_request_repeated(
    tmp_path: Path, plugin: Plugin, watch: Watch, is_stream: bool
) -> None:
    server = Server()
    server.admitted = "one"
    plugin.print(token="one")
    async with reached(server, tmp_path / "config", plugin.user()) as kube:
        await kube.get(POD, "ns", "a")
        server.admitted = "two"
        plugin.print(token="two")
        watch.seconds += credentials.RETRY_SECONDS
        if is_stream:
            async with kube.stream("/api/v1/pods", query={"watch": "1"}) as content:
                assert b"GET" in await content.read()
        else:
            body = {"metadata": {"name": "a" * LARGE_BODY}}  # in pieces, which are read once
            sent = json.loads(await kube.create(POD, "ns", body))
            assert (sent["method"], json.loads(sent["body"])) == ("POST", body)
    assert server.shown == ["Bearer one", "Bearer one", "Bearer two"]
    assert plugin.runs == 2


async def test_requests_that_are_refused_together_renew_once(
    tmp_path: Path, plugin: Plugin, watch: Watch
) -> None:
    server = Server()
    plugin.print(token="one")
    async with reached(server, tmp_path / "config", plugin.user()) as kube:
        server.admitted = "two"
        plugin.print(token="two")
        watch.seconds += credentials.RETRY_SECONDS
        async with asyncio.TaskGroup() as group:
            for _ in range(9):
                group.create_task(get(kube))
    assert plugin.runs == 2


async def test_a_token_that_stays_refused_does_not_run_the_plugin_for_each_request(
    tmp_path: Path, plugin: Plugin, watch: Watch
) -> None:
    server = Server()
    plugin.print(token="one")
    async with reached(server, tmp_path / "config", plugin.user()) as kube:
        for _ in range(5):
            with pytest.raises(errors.Unauthorized):
                await kube.get(POD, "ns", "a")
        assert plugin.runs == 1
        watch.seconds += credentials.RETRY_SECONDS
        for _ in range(5):
            with pytest.raises(errors.Unauthorized):
                await kube.get(POD, "ns", "a")
    assert (plugin.runs, len(server.seen)) == (2, 10)


async def test_a_write_is_not_sent_if_the_fence_closes_while_a_plugin_runs(
    tmp_path: Path, plugin: Plugin, watch: Watch
) -> None:
    server = Server()
    plugin.print(token="one", expirationTimestamp=watch.now().isoformat())

    def check() -> None:
        if plugin.runs > 1:
            raise errors.OwnershipLost("the Lease has expired")

    async with reached(server, tmp_path / "config", plugin.user()) as kube:
        kube.may_write = check
        watch.seconds += 1.0
        with pytest.raises(errors.OwnershipLost):
            await kube.create(POD, "ns", {})
    assert server.seen == []


async def test_a_plugin_that_fails_is_named_and_tried_again_after_a_while(
    tmp_path: Path, plugin: Plugin, watch: Watch
) -> None:
    plugin.print(token="one", expirationTimestamp=(watch.now() + timedelta(1)).isoformat())
    config = await rest_config.load(kubeconfig=written(tmp_path / "config", user=plugin.user()))
    plugin.fail()
    watch.seconds += timedelta(1).total_seconds()
    for _ in range(3):
        with pytest.raises(
            errors.Unavailable, match=r"exec plugin \S*/plugin ended with 3: cat.* log in again"
        ):
            await config.credentials.get_identity()
    assert plugin.runs == 2
    plugin.print(token="two")
    watch.seconds += credentials.RETRY_SECONDS
    assert await shown_by(config) == "Bearer two"


async def test_credentials_that_have_expired_already_are_not_made_for_each_request(
    tmp_path: Path, plugin: Plugin, watch: Watch
) -> None:
    plugin.print(token="one", expirationTimestamp=(watch.now() - timedelta(1)).isoformat())
    config = await rest_config.load(kubeconfig=written(tmp_path / "config", user=plugin.user()))
    assert [await shown_by(config) for _ in range(9)] == ["Bearer one"] * 9
    assert plugin.runs == 2


@cases(
    ("status", "text"),
    {
        "nothing": ({}, "gave neither token nor certificate"),
        "no key": ({"clientCertificateData": "c"}, "gave one of clientCertificateData"),
        "no text": ({"token": 3}, "printed no ExecCredential"),
        "no time": ({"token": "t", "expirationTimestamp": "soon"}, "printed no ExecCredential"),
        "another version": ({"token": "t", "api_version": "x/v9"}, "of x/v9"),
    },
)
async def test_what_a_plugin_must_not_print(
    tmp_path: Path, plugin: Plugin, status: dict[str, Any], text: str
) -> None:
    plugin.print(**status)
    file = written(tmp_path / "config", user=plugin.user())
    with pytest.raises(errors.InvalidSpec, match=text):
        await rest_config.load(kubeconfig=file)


@cases(
    ("more", "text"),
    {
        "absent": ({"command": "no-such", "installHint": "get it"}, "No such file.*; get it"),
        "asks": ({"interactiveMode": "Always"}, "standard input is no terminal"),
    },
)
async def test_a_plugin_that_cannot_run(
    tmp_path: Path, plugin: Plugin, more: dict[str, Any], text: str
) -> None:
    plugin.print(token="t")
    file = written(tmp_path / "config", user=plugin.user(**more))
    with pytest.raises(errors.InvalidSpec, match=text):
        await rest_config.load(kubeconfig=file)


async def test_a_plugin_is_found_beside_the_kubeconfig_and_learns_about_the_cluster(
    tmp_path: Path, plugin: Plugin
) -> None:
    plugin.print(token="t")
    user = plugin.user(command="./plugin", provideClusterInfo=True, args=None, env=None)
    extension = {"name": rest_config.EXEC_EXTENSION, "extension": {"audience": "a"}}
    file = written(tmp_path / "config", user=user, extensions=[extension])
    await rest_config.load(kubeconfig=file)
    assert json.loads(plugin.asked.read_text()) == {
        "kind": "ExecCredential",
        "apiVersion": API,
        "spec": {
            "interactive": False,
            "cluster": {"server": "http://h:1", "config": {"audience": "a"}},
        },
    }


async def test_a_file_with_a_token_is_read_each_minute_and_after_a_refusal(
    tmp_path: Path, watch: Watch
) -> None:
    server, token = Server(), tmp_path / "token"
    server.admitted = "one"
    token.write_text("one\n")
    async with reached(server, tmp_path / "config", {"tokenFile": "token"}) as kube:
        await kube.get(POD, "ns", "a")
        token.write_text("two")
        await kube.get(POD, "ns", "a")
        watch.seconds += credentials.READ_AGAIN_SECONDS
        server.admitted = "two"
        await kube.get(POD, "ns", "a")
        token.write_text("three")
        server.admitted = "three"
        watch.seconds += credentials.RETRY_SECONDS
        await kube.get(POD, "ns", "a")
        token.unlink()
        watch.seconds += credentials.READ_AGAIN_SECONDS
        await kube.get(POD, "ns", "a")
    assert [text.removeprefix("Bearer ") for text in server.shown] == [
        *("one", "one", "two", "two", "three", "three")
    ]


async def test_a_certificate_that_was_replaced_is_shown(tmp_path: Path, watch: Watch) -> None:
    pkis = [
        kubeconfig.create(tmp_path / name, addresses=["127.0.0.1"], node="n")
        for name in ("first", "second")
    ]
    own = tmp_path / "own.crt", tmp_path / "own.key"

    def put(pki: kubeconfig.ClusterPki) -> None:
        own[0].write_bytes(pki.certificate("kubelet").read_bytes())
        own[1].write_bytes(pki.key("kubelet").read_bytes())

    put(pkis[0])
    user = {"client-certificate": own[0].name, "client-key": own[1].name}
    file = written(tmp_path / "config", user=user, server="https://h:1")
    config = await rest_config.load(kubeconfig=file)
    contexts = [(await config.credentials.get_identity()).tls]
    watch.seconds += credentials.READ_AGAIN_SECONDS
    contexts.append((await config.credentials.get_identity()).tls)
    put(pkis[1])
    watch.seconds += credentials.READ_AGAIN_SECONDS
    contexts.append((await config.credentials.get_identity()).tls)
    own[1].write_text("half of a key")
    watch.seconds += credentials.READ_AGAIN_SECONDS
    contexts.append((await config.credentials.get_identity()).tls)
    is_new = [former is not next_one for former, next_one in itertools.pairwise(contexts)]
    assert is_new == [False, True, False]


async def test_headers_of_impersonation_are_sent(tmp_path: Path) -> None:
    server = Server()
    server.admitted = "t"
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.org/x": ["1"]},
    }
    async with reached(server, tmp_path / "config", user) as kube:
        await kube.get(POD, "ns", "a")
    (seen,) = server.seen
    assert [pair for pair in seen if pair[0].startswith("Impersonate")] == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.org%2Fx", "1"),
    ]


async def test_of_joined_files_the_first_one_with_a_name_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
        written(tmp_path / name / "config", user={"tokenFile": "token"})
    names = [str(tmp_path / name / "config") for name in ("absent", "two", "one")]
    config = await rest_config.load(kubeconfig=Path(":".join(names)))
    assert await shown_by(config) == "Bearer two"


def a_jwt(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


@pytest.mark.parametrize(
    ("token", "expires"),
    [
        pytest.param(a_jwt({"exp": 1767225600}), datetime(2026, 1, 1, tzinfo=UTC), id="a JWT"),
        pytest.param(a_jwt({}), None, id="without a time"),
        pytest.param(a_jwt({"exp": 1e300}), None, id="a time that is none"),
        pytest.param("opaque", None, id="opaque"),
        pytest.param("", None, id="empty"),
        pytest.param("a.%%%.c", None, id="not encoded"),
    ],
)
def test_when_a_token_expires(token: str, expires: datetime | None) -> None:
    assert credentials.parse_expiry(token) == expires
