"""The dashboard for many users on a real API server: each request with its answer, forged identities, other namespaces, revoked rights."""

import asyncio
import secrets
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE, ROLE_BINDING
from integration.dashboard.shared import (
    AUDIENCE,
    CHANGE,
    OWN,
    READ,
    a_placed_head,
    another_namespace,
    grant,
    kubeconfig_of_the_pod,
    token,
    user,
)
from integration.dashboard.test_page import named, put
from localcluster import kubeconfig
from localcluster.control_plane import ControlPlane
from support.builders.example_upgrade import an_example_upgrade
from support.builders.snapshots import BLUE
from support.servers import dashboard
from support.servers.dashboard import Dashboard
from support.servers.outside import outside
from support.tables import cases

pytestmark = [pytest.mark.integration]

TIMEOUT = 30.0
REVOKED_SECONDS = 25.0
"""Ten seconds of the answers that are used, and a busy machine."""


@pytest.fixture
async def pod(control_plane: ControlPlane, kube: KubeClient, namespace: str) -> tuple[str, ...]:
    """Return the options of a dashboard with the rights of the component."""
    config = await kubeconfig_of_the_pod(control_plane, kube, namespace)
    return ("--kubeconfig", str(config), "--audience", AUDIENCE)


@pytest.fixture
async def other(kube: KubeClient, namespace: str) -> str:
    """Make a namespace in which no user of the tests may do anything."""
    found = await another_namespace(kube, f"{namespace}-other")
    await put(kube, found, named("hidden"))
    return found


@asynccontextmanager
async def client_of(running: Dashboard, **headers: str) -> AsyncGenerator[httpx.AsyncClient]:
    given = {**OWN, **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with httpx.AsyncClient(
        base_url=running.address, headers=given, timeout=TIMEOUT, trust_env=False
    ) as client:
        yield client


async def status_of(running: Dashboard, target: str) -> int:
    """Return the status of a request with a target as it is, which clients would make canonical."""
    port = int(running.address.rsplit(":", 1)[1].strip("/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {target} HTTP/1.1\r\nHost: x\r\nX-Raybus-Dashboard: 1\r\nConnection: close\r\n\r\n".encode()
    )
    answer = await reader.readline()
    writer.close()
    return int(answer.split()[1])


async def first(
    client: httpx.AsyncClient,
    path: str,
    event: str,
    *,
    that: Callable[[Any], object] = lambda _data: True,
) -> Any:
    """Return the data of the first event of a name in a stream, of those that pass a check."""
    async with client.stream("GET", path) as answer:
        assert answer.status_code == 200, await answer.aread()
        name = ""
        async for line in answer.aiter_lines():
            key, _, value = line.partition(": ")
            name = value if key == "event" else name
            if key == "data" and name == event and that(msgspec.json.decode(value)):
                return msgspec.json.decode(value)
    raise AssertionError(f"no {event}")


async def test_without_an_identity_there_are_the_files_of_the_page_alone(
    pod: tuple[str, ...], tmp_path: Path
) -> None:
    async with dashboard.served(tmp_path, *pod) as running, client_of(running) as client:
        page = await client.get("/")
        assert (page.status_code, "<title>raybus</title>" in page.text) == (200, True)
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        forged = {
            "X-Forwarded-User": "admin",
            "X-Forwarded-Groups": "system:masters",
            "X-Raybus-Proxy-Secret": "x",
        }
        body = {"service": "a/b", "verb": "pause", "generation": 1}
        answers = {
            "no credentials": await client.get("/events"),
            "a token that is none": await client.get(
                "/events", headers={"Authorization": "Bearer x"}
            ),
            "no token": await client.get("/events", headers={"Authorization": "Basic YTpi"}),
            "headers of a proxy": await client.get("/events", headers=forged),
            "an action": await client.post("/actions", json=body),
            "the header of the page is missing": await client.get(
                "/events", headers={"X-Raybus-Dashboard": ""}
            ),
            "another site": await client.get("/events", headers={"Sec-Fetch-Site": "cross-site"}),
            "a sibling site": await client.get("/events", headers={"Sec-Fetch-Site": "same-site"}),
            "no file": await client.get("/cli.py"),
        }
        for each in answers.values():
            assert "access-control-allow-origin" not in each.headers
            assert "set-cookie" not in each.headers
        assert {name: each.status_code for name, each in answers.items()} == {
            "no credentials": 401,
            "a token that is none": 401,
            "no token": 401,
            "headers of a proxy": 401,
            "an action": 401,
            "the header of the page is missing": 401,
            "another site": 403,
            "a sibling site": 403,
            "no file": 401,
        }
        targets = [
            *("/page.js/../events", "/%2e%2e/events", "//events", "/events%3f", "/./events"),
            *("/page.js%00", "events", "*"),
        ]
        assert [
            each for each in targets if await status_of(running, each) not in {400, 401, 403, 404}
        ] == []
        assert answers["no credentials"].headers["www-authenticate"] == "Bearer"


async def test_a_request_without_the_header_of_the_page_is_refused_before_its_credentials_count(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    mine = await user(kube, namespace, "ann", READ)
    async with (
        dashboard.served(tmp_path, *pod) as running,
        client_of(running, Authorization=f"Bearer {mine}") as client,
    ):
        del client.headers["X-Raybus-Dashboard"]
        answers = [await client.get("/events"), await client.post("/actions", json={})]
        assert [each.status_code for each in answers] == [403, 403]


async def test_each_user_reads_what_kubernetes_allows(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, other: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("demo"))
    ann = await user(kube, namespace, "ann", READ)
    elsewhere = await token(kube, namespace, "ann")
    async with (
        dashboard.served(tmp_path, *pod) as running,
        client_of(running, Authorization=f"Bearer {ann}") as client,
    ):
        rows = await first(client, f"/events?namespace={namespace}", "rows")
        assert [(each["namespace"], each["name"]) for each in rows["rows"]] == [(namespace, "demo")]
        sources = await first(client, f"/events?namespace={namespace}", "sources")
        assert sources["user"] == f"system:serviceaccount:{namespace}:ann"
        hidden = await first(
            client, f"/events?namespace={namespace}&service={other}/hidden", "sources"
        )
        assert "hidden" not in msgspec.json.encode(hidden).decode()
        answers = {
            "another namespace": await client.get(f"/events?namespace={other}"),
            "all namespaces": await client.get("/events"),
            "a path as a namespace": await client.get(f"/events?namespace={other}/rayservices/x?"),
            "dots as a namespace": await client.get("/events?namespace=.."),
            "a path as a service": await client.get(f"/events?namespace={namespace}&service=../x"),
            "a large header": await client.get("/events", headers={"X-Large": "x" * 100_000}),
            "many headers": await client.get(
                "/events", headers={f"X-{each}": "x" for each in range(300)}
            ),
            "a token for the API server": await client.get(
                f"/events?namespace={namespace}", headers={"Authorization": f"Bearer {elsewhere}"}
            ),
        }
        assert {name: each.status_code for name, each in answers.items()} == {
            "another namespace": 403,
            "all namespaces": 403,
            "a path as a namespace": 400,
            "dots as a namespace": 400,
            "a path as a service": 400,
            "a large header": 400,
            "many headers": 400,
            "a token for the API server": 401,
        }
        assert (
            answers["another namespace"].text == f"cannot list rayservices in namespace {other}\n"
        )
        assert answers["all namespaces"].text == "cannot list rayservices in all namespaces\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(6):
                await first(
                    client, f"/events?namespace={namespace}&service={other}/hidden", "detail"
                )
    assert ann not in running.stderr
    assert "Traceback" not in running.stderr


async def test_actions_need_the_option_and_the_right_of_the_user(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("demo"))
    generation = msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, "demo"))["metadata"][
        "generation"
    ]
    asked = {"service": f"{namespace}/demo", "verb": "pause", "generation": generation}
    editor, viewer = (
        await user(kube, namespace, "ann", READ, CHANGE),
        await user(kube, namespace, "bob", READ),
    )

    async def annotations() -> dict[str, str]:
        return msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, "demo"))["metadata"].get(
            "annotations", {}
        )

    async with (
        dashboard.served(tmp_path / "read-only", *pod) as running,
        client_of(running, Authorization=f"Bearer {editor}") as client,
    ):
        refused = await client.post("/actions", json=asked)
        assert (refused.status_code, "--allow-actions" in refused.text) == (403, True)
    async with (
        dashboard.served(tmp_path / "acting", *pod, "--allow-actions") as running,
        client_of(running, Authorization=f"Bearer {viewer}") as theirs,
        client_of(running, Authorization=f"Bearer {editor}") as mine,
    ):
        denied = await theirs.post("/actions", json=asked)
        assert (denied.status_code, denied.text) == (
            403,
            f"cannot patch rayservices demo in namespace {namespace}\n",
        )
        form = await mine.post(
            "/actions", content=msgspec.json.encode(asked), headers={"Content-Type": "text/plain"}
        )
        assert form.status_code == 415
        assert "raybus.io/pause" not in await annotations()
        done = await mine.post("/actions", json=asked)
        assert (done.status_code, done.text.split(" ")[:2]) == (200, ["demo", "paused:"])
        assert (await annotations())["raybus.io/pause"] == "true"
        lines = [msgspec.json.decode(each) for each in running.stderr.splitlines()]
        acted = [
            (each["user"].rpartition(":")[2], each["status"])
            for each in lines
            if each["msg"] == "action"
        ]
        assert acted == [("bob", 403), ("ann", 200)]


async def test_logs_need_the_right_of_the_user(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("demo"))
    head = await a_placed_head(kube, namespace, BLUE)
    some = {
        "apiGroups": ["ray.io", ""],
        "resources": ["rayservices", "pods"],
        "verbs": ["get", "list"],
    }
    reader, viewer = (
        await user(kube, namespace, "ann", READ),
        await user(kube, namespace, "bob", some),
    )
    path = f"/logs?service={namespace}/demo"
    async with (
        dashboard.served(tmp_path, *pod) as running,
        client_of(running, Authorization=f"Bearer {viewer}") as theirs,
        client_of(running, Authorization=f"Bearer {reader}") as mine,
        client_of(running) as nobody,
    ):
        denied = await theirs.get(path)
        assert (denied.status_code, denied.text) == (
            403,
            f"cannot get pods/log {head} in namespace {namespace}\n",
        )
        # No kubelet runs here: the API server was asked, and does not find the node.
        assert (await mine.get(path)).status_code in {404, 503}
        wrong = [
            f"{path}&pod=../x",
            f"{path}&cluster=a/b",
            f"/logs?service={namespace}",
            f"{path}&pod=another",
        ]
        assert [(await mine.get(each)).status_code for each in wrong] == [400, 400, 400, 404]
        assert (await nobody.get(path)).status_code == 401


async def test_upgrade_events_are_shown_to_users_that_may_read_the_service(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, other: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("demo"))
    mine = await user(kube, namespace, "ann", READ)
    async with outside(tmp_path / "nats") as nats:
        await nats.publish(
            [
                *an_example_upgrade("demo", namespace=namespace),
                *an_example_upgrade("hidden", namespace=other),
            ]
        )
        credentials = ("--nats", nats.url, "--nats-credentials", str(nats.folder))
        async with (
            dashboard.served(tmp_path / "run", *pod, *credentials) as running,
            client_of(running, Authorization=f"Bearer {mine}") as client,
        ):
            path = f"/events?namespace={namespace}&service="
            await first(
                client,
                f"{path}{namespace}/demo",
                "sources",
                that=lambda data: data["eventFeed"] == "live",
            )
            detail = await first(
                client, f"{path}{namespace}/demo", "detail", that=lambda data: data["timelines"]
            )
            assert detail["timelines"][0]["lines"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(6):
                    await first(client, f"{path}{other}/hidden", "detail")


async def test_a_revoked_right_ends_the_stream(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("demo"))
    mine = await user(kube, namespace, "ann", READ)
    async with (
        dashboard.served(tmp_path, *pod) as running,
        client_of(running, Authorization=f"Bearer {mine}") as client,
        client.stream("GET", f"/events?namespace={namespace}&service={namespace}/demo") as stream,
    ):
        lines = stream.aiter_lines()
        assert await anext(lines) == "event: sources"
        await kube.delete(ROLE_BINDING, namespace, "ann")
        async with asyncio.timeout(REVOKED_SECONDS):
            left = [line async for line in lines]
        assert left[-3:-1] == [
            "event: ended",
            f'data: {{"problem":"cannot list rayservices in namespace {namespace}"}}',
        ]
        assert (await client.get(f"/events?namespace={namespace}")).status_code == 403


async def test_a_proxy_with_the_secret_names_the_user(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    secret = secrets.token_hex(32)
    (tmp_path / "secret").write_text(secret + "\n")
    await put(kube, namespace, named("demo"))
    await grant(
        kube,
        namespace,
        "team",
        {"kind": "Group", "name": "sso:team", "apiGroup": ROLE_BINDING.group},
        [READ],
    )
    arguments = (
        "--proxy-secret-file",
        str(tmp_path / "secret"),
        "--proxy-group-prefix",
        "sso:",
        "--no-token-review",
    )
    async with (
        dashboard.served(tmp_path / "run", *pod, *arguments) as running,
        client_of(running, X_Forwarded_User="ann", X_Forwarded_Groups="team") as forged,
        client_of(
            running,
            X_Forwarded_User="ann",
            X_Forwarded_Groups="x,team",
            X_Raybus_Proxy_Secret=secret,
        ) as mine,
        client_of(running, X_Forwarded_User="ann", X_Raybus_Proxy_Secret=secret) as alone,
        client_of(
            running,
            X_Forwarded_User="ann",
            X_Forwarded_Groups="system:masters",
            X_Raybus_Proxy_Secret=secret,
        ) as system,
    ):
        path = f"/events?namespace={namespace}"
        assert (await first(mine, path, "sources"))["user"] == "ann"
        answers = [await each.get(path) for each in (forged, alone, system)]
        assert [each.status_code for each in answers] == [401, 403, 403]
        assert "www-authenticate" not in answers[0].headers
        assert secret not in running.stderr


async def test_pages_of_a_user_are_bounded(
    pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    mine, theirs = (
        await user(kube, namespace, "ann", READ),
        await user(kube, namespace, "bob", READ),
    )
    path = f"/events?namespace={namespace}"
    async with (
        dashboard.served(tmp_path, *pod) as running,
        client_of(running, Authorization=f"Bearer {mine}") as client,
        client_of(running, Authorization=f"Bearer {theirs}") as another,
    ):
        opened = [client.stream("GET", path) for _ in range(8)]
        assert {(await each.__aenter__()).status_code for each in opened} == {200}
        assert (await client.get(path)).status_code == 429
        assert (await first(another, path, "sources"))["user"].endswith(":bob")
        await opened.pop().__aexit__(None, None, None)
        assert (await first(client, path, "sources"))["user"].endswith(":ann")
        for each in opened:
            await each.__aexit__(None, None, None)


async def test_tls(pod: tuple[str, ...], kube: KubeClient, namespace: str, tmp_path: Path) -> None:
    made = kubeconfig.create(tmp_path / "pki", addresses=["127.0.0.1"], node="n")
    mine = await user(kube, namespace, "ann", READ)
    files = (
        "--tls-cert-file",
        str(made.certificate("apiserver")),
        "--tls-private-key-file",
        str(made.key("apiserver")),
    )
    async with dashboard.served(tmp_path / "run", *pod, *files) as running:
        assert running.address.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(made.ca))
        async with httpx.AsyncClient(verify=trusting, timeout=TIMEOUT, trust_env=False) as client:
            headers = {**OWN, "Authorization": f"Bearer {mine}"}
            assert (
                await client.get(f"{running.address}events", headers=headers)
            ).status_code == 403
            page = await client.get(running.address)
            assert page.status_code == 200
            assert page.headers["strict-transport-security"] == "max-age=31536000"
            path = f"{running.address}events?namespace={namespace}"
            async with client.stream("GET", path, headers=headers) as stream:
                assert stream.headers["strict-transport-security"] == "max-age=31536000"
            forwarded = await client.get(running.address, headers={"Host": "localhost:8443"})
            assert "strict-transport-security" not in forwarded.headers


async def test_a_page_behind_a_proxy_with_tls_is_kept_on_tls(
    pod: tuple[str, ...], tmp_path: Path
) -> None:
    async with dashboard.served(tmp_path, *pod) as running, client_of(running) as client:
        plain = await client.get("/")
        proxied = await client.get("/", headers={"X-Forwarded-Proto": "https"})
        assert "strict-transport-security" not in plain.headers
        assert proxied.headers["strict-transport-security"] == "max-age=31536000"


@cases(
    ("arguments", "message"),
    {
        "no certificate": ((), "--tls-cert-file and --tls-private-key-file are needed"),
        "no identity": (("--plain-http", "--no-token-review"), "there is no anonymous access"),
        "no secret": (("--plain-http", "--proxy-secret-file", "/dev/null"), "0 bytes are too few"),
        "no file": (("--plain-http", "--proxy-secret-file", "/nowhere"), "cannot be read"),
        "with and without TLS": (("--plain-http", "--tls-cert-file", "x"), "exclude each other"),
    },
)
async def test_options_that_would_be_insecure(
    arguments: tuple[str, ...], message: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with dashboard.started_as(
        tmp_path, "serve", "--kubeconfig", str(control_plane.kubeconfig), *arguments
    ) as run:
        assert run.process.wait() == 2
        assert message in " ".join(run.stderr.split())
