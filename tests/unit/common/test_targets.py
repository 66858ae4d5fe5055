"""The servers that gates may query: those that an administrator lists, and the addresses that no
list permits.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import pytest

from common import targets
from common.targets import Origin, Targets

LIST: Final = (
    "https://hooks.example.com, https://*.checks.example.com:8443,http://prometheus.monitoring.svc:9090,"
    "http://10.1.0.0/16:8080,https://[2001:db8::]/32,http://*.{namespace}.svc:80"
)
ALLOWED: Final = Targets(origins=targets.read(LIST), api_server="10.1.0.1")


def refusal(url: str, namespace: str = "team") -> str | None:
    return ALLOWED.refusal(urlsplit(url), namespace)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/a",
        "https://HOOKS.example.com:443/a?b=c",
        "https://a.checks.example.com:8443",
        "https://a.b.checks.example.com:8443",
        "http://prometheus.monitoring.svc:9090/prefix",
        "http://10.1.2.3:8080/",
        "https://[2001:db8::5]/",
        "http://hook.team.svc/",
    ],
)
def test_a_server_of_the_list_may_be_asked(url: str) -> None:
    assert refusal(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/a",
        "https://hooks.example.com:8443/a",
        "https://hooks.example.com.attacker.example/",
        "https://attacker-hooks.example.com/",
        "https://checks.example.com:8443",
        "https://.checks.example.com:8443",
        "https://achecks.example.com:8443",
        "https://10.1.2.3:8080/",
        "http://10.2.0.1:8080/",
        "http://10.1.2.3:9090/",
        "http://167903747:8080/",
        "http://0x0a010203:8080/",
        "http://hook.other.svc/",
        "http://kubernetes.default.svc/",
    ],
)
def test_another_server_may_not_and_the_text_names_it_and_the_list(url: str) -> None:
    why = refusal(url)
    assert why is not None
    assert why.startswith(f"{urlsplit(url).scheme}://{urlsplit(url).hostname}:")
    assert why.endswith(
        "is not a server that the administrator of raybus lists in RAYBUS_GATE_TARGETS"
    )


def test_without_a_list_no_server_may_be_asked() -> None:
    assert Targets().refusal(urlsplit("https://example.com"), "team") is not None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "0.0.0.0",  # noqa: S104
        "0.1.2.3",
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "10.1.0.1",
        "::",
        "::1",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.1.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:0:102:304:0:0:5601:5601",
    ],
)
def test_no_list_opens_this_machine_the_link_metadata_or_the_api_server(address: str) -> None:
    every = targets.read("http://0.0.0.0/0:80,http://[::]/0:80")
    allowed = Targets(origins=every, api_server="10.1.0.1")
    found = ip_address(address)
    assert allowed.is_forbidden(found)
    host = f"[{address}]" if found.version == 6 else address
    assert allowed.refusal(urlsplit(f"http://{host}/"), "team") == (
        f"http://{address}:80 is an address that raybus never asks"
    )


@pytest.mark.parametrize(
    "address", ["10.1.0.2", "93.184.216.34", "2606:4700::1111", "fd12::5", "64:ff9b::5db8:d822"]
)
def test_other_addresses_are_only_a_matter_of_the_list(address: str) -> None:
    assert not ALLOWED.is_forbidden(ip_address(address))


def test_an_entry_is_an_origin_with_the_port_of_its_scheme() -> None:
    assert targets.read("https://A.example , http://b.example:81") == (
        Origin(scheme="https", host="a.example", port=443),
        Origin(scheme="http", host="b.example", port=81),
    )
    assert targets.read(" , ") == ()


@pytest.mark.parametrize(
    "text",
    [
        *("hooks.example.com", "ftp://hooks.example.com", "https://", "https://*"),
        *("https://a.*.example.com", "https://user@a.example", "https://a.example/path"),
        *("https://a.example:port", "https://a.example:0", "https://a.example:65536"),
        *("https://10.0.0.0/33", "https://10.0.0.1/8", "https://a.example/8", "https://[::1"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form https://HOST|has no port") as refused:
        targets.read(f"https://good.example,{text}")
    assert repr(text) in str(refused.value)
