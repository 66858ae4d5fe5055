"""ServiceAccounts and kubeconfigs, read here or by kubernetes-asyncio."""

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from common import errors
from common.kube import credentials, rest_config
from common.kube.client import KubeClient
from common.kube.resources import POD
from localcluster import kubeconfig
from support.servers.loopback import served
from support.tables import cases


async def authorization_of(config: rest_config.RestConfig) -> str | None:
    headers = dict((await config.credentials.get_identity()).headers)
    return headers.get("Authorization")


POD_ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Watch:
    """A clock for the credentials, in seconds set by the test."""

    seconds = 0.0


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    for module in (credentials, rest_config):
        monkeypatch.setattr(module, "steady", lambda: watch.seconds)
    return watch


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> kubeconfig.ClusterPki:
    return kubeconfig.create(tmp_path_factory.mktemp("pki"), addresses=["127.0.0.1"], node="n")


@pytest.fixture
def account(tmp_path: Path, certificates: kubeconfig.ClusterPki) -> Path:
    (tmp_path / "ca.crt").write_bytes(certificates.ca.read_bytes())
    (tmp_path / "token").write_text("one\n")
    return tmp_path


def written(
    path: Path,
    certificates: kubeconfig.ClusterPki,
    *,
    user: dict[str, Any],
    server: str = "https://h:1",
    **cluster: Any,
) -> Path:
    access = kubeconfig.Access(server=server, ca=certificates.ca.read_bytes(), token="t")
    document = kubeconfig.build("c", access)
    document["users"][0]["user"] = user
    document["clusters"][0]["cluster"] |= cluster
    path.write_text(yaml.safe_dump(document))
    return path


async def test_a_pod_shows_the_token_that_its_file_holds_now(account: Path, watch: Watch) -> None:
    config = rest_config.in_cluster(POD_ENVIRONMENT, account)
    tls = (await config.credentials.get_identity()).tls
    assert (config.server, tls is not None) == ("https://10.0.0.1:443", True)
    (account / "token").write_text("two")
    assert await authorization_of(config) == "Bearer one"
    watch.seconds += credentials.READ_AGAIN_SECONDS
    assert await authorization_of(config) == "Bearer two"
    (account / "token").unlink()
    watch.seconds += credentials.READ_AGAIN_SECONDS
    assert await authorization_of(config) == "Bearer two"


def test_an_address_of_ipv6_stands_in_brackets(account: Path) -> None:
    config = rest_config.in_cluster(
        POD_ENVIRONMENT | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, account
    )
    assert config.server == "https://[fd00::1]:443"


async def test_outside_of_a_pod_a_kubeconfig_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(
        errors.InvalidSpec, match="cannot read the pod's ServiceAccount: KUBERNETES_SERVICE_HOST"
    ):
        await rest_config.load(kubeconfig=None)


@pytest.mark.parametrize("is_in_files", [False, True], ids=["as data", "in files"])
async def test_a_client_certificate_is_shown_to_the_server(
    tmp_path: Path, certificates: kubeconfig.ClusterPki, is_in_files: bool
) -> None:
    pair = (certificates.certificate("kubelet"), certificates.key("kubelet"))
    user: dict[str, Any]
    if is_in_files:
        user = {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
    else:
        user = {
            "client-certificate-data": pair[0].read_bytes(),
            "client-key-data": pair[1].read_bytes(),
        }
    shown: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        shown.append(request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    tls.load_cert_chain(certificates.certificate("apiserver"), certificates.key("apiserver"))
    tls.verify_mode = ssl.CERT_REQUIRED
    async with served(app, tls=tls) as port:
        file = written(
            tmp_path / "config", certificates, user=user, server=f"https://127.0.0.1:{port}"
        )
        kube = await KubeClient.connect(kubeconfig=file, user_agent="test")
        await kube.get(POD, "ns", "a")
        await kube.close()
    assert shown == [((("commonName", "system:node:n"),), (("organizationName", "system:nodes"),))]


@cases(
    ("user", "cluster", "authorization"),
    {
        "a token": ({"token": "t"}, {}, "Bearer t"),
        "nobody": ({}, {}, None),
        "a password": ({"username": "u", "password": "p"}, {}, "Basic dTpw"),
        "no verification": ({"token": "t"}, {"insecure-skip-tls-verify": True}, "Bearer t"),
        "exec": (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "PLUGIN"}},
            {},
            "Bearer e",
        ),
    },
)
async def test_a_kubeconfig_defines_the_authorization(
    tmp_path: Path,
    certificates: kubeconfig.ClusterPki,
    user: dict[str, Any],
    cluster: dict[str, Any],
    authorization: str | None,
) -> None:
    if "exec" in user:
        plugin = tmp_path / "plugin"
        answer = '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "e"}}'
        plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
        plugin.chmod(0o700)
        user = {"exec": user["exec"] | {"command": str(plugin)}}
    file = written(tmp_path / "config", certificates, user=user, **cluster)
    config = await rest_config.load(kubeconfig=file, context="c")
    assert (config.server, await authorization_of(config)) == ("https://h:1", authorization)
    tls = (await config.credentials.get_identity()).tls
    assert tls is not None
    assert tls.check_hostname is not cluster.get("insecure-skip-tls-verify", False)


async def test_the_library_reads_the_other_fields_of_a_kubeconfig(
    tmp_path: Path, certificates: kubeconfig.ClusterPki
) -> None:
    file = written(
        tmp_path / "config",
        certificates,
        user={"token": "t"},
        **{"tls-server-name": "n", "proxy-url": "http://p:3"},
    )
    config = await rest_config.load(kubeconfig=file)
    assert (config.server_name, config.proxy, await authorization_of(config)) == (
        "n",
        "http://p:3",
        "Bearer t",
    )


async def test_an_unknown_context_is_named(
    tmp_path: Path, certificates: kubeconfig.ClusterPki
) -> None:
    file = written(tmp_path / "config", certificates, user={"token": "t"})
    with pytest.raises(
        errors.InvalidSpec, match=r"cannot read kubeconfig .*object with name other in"
    ):
        await rest_config.load(kubeconfig=file, context="other")


@pytest.mark.parametrize(
    "service",
    ["watcher", "cluster_reconciler", "service_reconciler", "traffic_manager", "job_reconciler"],
)
def test_a_service_with_a_token_does_not_import_the_library(
    tmp_path: Path, certificates: kubeconfig.ClusterPki, service: str
) -> None:
    file = written(tmp_path / "config", certificates, user={"token": "t"})
    code = (
        f"import asyncio, sys, pathlib, {service}.wiring; from common.kube import rest_config;"
        f"asyncio.run(rest_config.load(kubeconfig=pathlib.Path({str(file)!r})));"
        "print(sorted({'kubernetes_asyncio', 'opentelemetry'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
