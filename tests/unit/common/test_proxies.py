"""The proxy of a request, compared with answers that Go's `httpproxy` gave."""

import msgspec
import pytest

from common import errors
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from common.proxies import OutboundProxies
from support.manifests import ROOT

GOLDEN = msgspec.json.decode((ROOT / "tests" / "golden" / "proxies.json").read_bytes())
"""By value of `NO_PROXY`: URLs, and those of them that Go requests through a proxy."""
PROXY = {"HTTP_PROXY": "p:1", "HTTPS_PROXY": "p:1"}


@pytest.mark.parametrize("no_proxy", GOLDEN["proxied"])
def test_no_proxy_is_what_it_is_for_go(no_proxy: str) -> None:
    proxies = OutboundProxies.from_environment(PROXY | {"NO_PROXY": no_proxy})
    found = [url for url in GOLDEN["urls"] if proxies.find(url) is not None]
    assert found == GOLDEN["proxied"][no_proxy]


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"HTTP_PROXY": "http://p"}, None, id="of the other scheme"),
        pytest.param({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128", id="a URL"),
        pytest.param({"HTTPS_PROXY": "p:3128"}, "http://p:3128", id="a host and a port"),
        pytest.param({"HTTPS_PROXY": "p"}, "http://p", id="a host"),
        pytest.param({"HTTPS_PROXY": "u", "https_proxy": "l"}, "http://l", id="lower case first"),
        pytest.param({"HTTPS_PROXY": "u", "https_proxy": ""}, "http://u", id="an empty one"),
    ],
)
def test_the_environment_names_the_proxy(environment: dict[str, str], proxy: str | None) -> None:
    assert OutboundProxies.from_environment(environment).find("https://example.com") == proxy


def test_a_cgi_script_takes_no_proxy_from_a_header() -> None:
    proxies = OutboundProxies.from_environment(PROXY | {"REQUEST_METHOD": "GET"})
    assert proxies.find("http://example.com") is None
    assert proxies.find("https://example.com") == "http://p:1"


async def test_a_kind_of_proxy_that_is_not_spoken_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:secret@p:1080")
    with pytest.raises(errors.InvalidSpec, match="the proxy socks5://p:1080 of the API server"):
        KubeClient(RestConfig(server="https://10.96.0.1"), user_agent="test")


async def test_an_unreachable_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@127.0.0.1:1")
    kube = KubeClient(RestConfig(server="https://10.96.0.1"), user_agent="test")
    with pytest.raises(errors.Unavailable, match=r"the proxy http://127\.0\.0\.1:1 ") as raised:
        await kube.request("GET", "/version")
    await kube.close()
    assert "secret" not in str(raised.value)
