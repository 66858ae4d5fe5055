"""Tokens of dashboards: read or issued once, replaced when refused or before their end, and shared by no two namespaces."""

from base64 import b64encode
from datetime import datetime, timedelta

import msgspec
import pytest

from common import errors
from common.api.ray_cluster import RayCluster
from common.kube.resources import SECRET, SERVICE_ACCOUNT
from common.ray import dashboard_token
from common.ray.dashboard_token import ACCOUNT, RENEWED_AFTER, Tokens
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube, Request


def of_kubernetes(name: str = "c", namespace: str = "ns") -> RayCluster:
    cluster = a_ray_cluster(
        auth_options={"mode": "token", "enableK8sTokenAuth": True}, ray_version="2.55.0"
    )
    meta = msgspec.structs.replace(
        cluster.metadata, name=name, namespace=namespace, uid=f"uid-of-{namespace}-{name}"
    )
    return msgspec.structs.replace(cluster, metadata=meta)


def of_a_secret() -> RayCluster:
    return a_ray_cluster(auth_options={"mode": "token", "secretName": "own"}, ray_version="2.52.0")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def kube(clock: FakeClock) -> FakeKube:
    kube = FakeKube(now=clock.now)
    for namespace in ("ns", "other"):
        kube.put(SERVICE_ACCOUNT, {"metadata": {"name": ACCOUNT, "namespace": namespace}})
    put_secret(kube, "b25l")
    return kube


@pytest.fixture
def tokens(kube: FakeKube, clock: FakeClock) -> Tokens:
    return Tokens(kube, clock)


def put_secret(kube: FakeKube, stored: str) -> None:
    kube.put(
        SECRET, {"metadata": {"name": "own", "namespace": "ns"}, "data": {"auth_token": stored}}
    )


async def test_the_clusters_of_a_namespace_share_a_token_and_those_of_another_have_their_own(
    tokens: Tokens,
) -> None:
    sent = [
        await tokens.read_token(each)
        for each in (of_kubernetes("a"), of_kubernetes("b"), of_kubernetes("a", "other"))
    ]
    assert sent == ["issued-ns-1", "issued-ns-1", "issued-other-2"]


async def test_an_issued_token_is_replaced_before_its_end(tokens: Tokens, clock: FakeClock) -> None:
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-1"
    clock.advance(2879)
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-1"
    clock.advance(2)
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-2"


async def test_the_life_of_a_token_is_measured_by_the_clock_of_the_api_server(
    clock: FakeClock,
) -> None:
    kube = FakeKube(now=lambda: datetime(1990, 1, 1).astimezone())
    kube.put(SERVICE_ACCOUNT, {"metadata": {"name": ACCOUNT, "namespace": "ns"}})
    tokens = Tokens(kube, clock)
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-1"
    clock.advance(2000)
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-1"


async def test_a_refused_token_that_is_young_is_not_replaced(
    tokens: Tokens, clock: FakeClock
) -> None:
    """In that case the right is missing: a hostile dashboard that refuses everything must not cause
    a token request each time.
    """
    first = await tokens.read_token(of_kubernetes())
    assert await tokens.another(of_kubernetes(), first) is None
    clock.advance(RENEWED_AFTER)
    assert await tokens.another(of_kubernetes(), first) == "issued-ns-2"
    assert await tokens.another(of_kubernetes("b"), first) == "issued-ns-2", (
        "that of another cluster there replaced it already"
    )


async def test_a_secret_is_read_again_when_its_token_is_refused(
    tokens: Tokens, kube: FakeKube
) -> None:
    assert await tokens.read_token(of_a_secret()) == "one"
    assert await tokens.another(of_a_secret(), "one") is None
    put_secret(kube, "dHdv")
    assert await tokens.read_token(of_a_secret()) == "one"
    assert await tokens.another(of_a_secret(), "one") == "two"
    assert await tokens.read_token(of_a_secret()) == "two"


async def test_a_token_that_no_dashboard_takes_is_not_kept(tokens: Tokens, kube: FakeKube) -> None:
    put_secret(kube, b64encode(b"x" * 8_001).decode())
    with pytest.raises(errors.Unauthenticated, match="not a text that a header can carry"):
        await tokens.read_token(of_a_secret())


async def test_a_secret_that_is_gone_leaves_no_old_token(tokens: Tokens, kube: FakeKube) -> None:
    assert await tokens.read_token(of_a_secret()) == "one"
    await kube.delete(SECRET, "ns", "own")
    with pytest.raises(
        errors.Unauthenticated, match='failed to get auth secret ns/own: secrets "own" not found'
    ):
        await tokens.another(of_a_secret(), "one")
    with pytest.raises(errors.Unauthenticated):
        await tokens.read_token(of_a_secret())


async def test_what_another_replica_asks_is_read_anew(tokens: Tokens, kube: FakeKube) -> None:
    assert await tokens.read_token(of_a_secret()) == "one"
    put_secret(kube, "dHdv")
    tokens.forget(of_a_secret().metadata.uid)
    assert await tokens.read_token(of_a_secret()) == "two"


async def test_a_cluster_without_tokens_has_none_to_replace(tokens: Tokens, kube: FakeKube) -> None:
    for options in (None, {}, {"mode": "disabled"}, {"enableK8sTokenAuth": True}):
        cluster = a_ray_cluster(auth_options=options)
        assert (await tokens.read_token(cluster), await tokens.another(cluster, None)) == (
            None,
            None,
        )
    assert kube.requests == []


async def test_a_refusal_of_the_api_server_names_the_account(
    tokens: Tokens, kube: FakeKube
) -> None:
    kube.faults.append(lambda _request: errors.Forbidden("not allowed"))
    with pytest.raises(
        errors.Unauthenticated,
        match=f"ServiceAccount ns/{ACCOUNT} cannot be issued a token: not allowed",
    ):
        await tokens.read_token(of_kubernetes())


async def test_only_the_account_of_that_name_is_asked_for(tokens: Tokens, kube: FakeKube) -> None:
    await tokens.read_token(of_kubernetes())
    (request,) = kube.requests
    body = {"spec": {"expirationSeconds": 3600}}
    expected = Request(
        verb="create",
        kind="ServiceAccount",
        namespace="ns",
        name=ACCOUNT,
        subresource="token",
        body=body,
    )
    assert request == expected


async def test_the_oldest_token_makes_room(
    kube: FakeKube, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.runtime.cache.REMEMBERED", 1)
    tokens = Tokens(kube, clock)
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-1"
    await tokens.read_token(of_a_secret())
    assert await tokens.read_token(of_kubernetes()) == "issued-ns-2"
    assert timedelta(hours=1) == dashboard_token.ISSUED_FOR
    assert kube.tokens_issued == 2
