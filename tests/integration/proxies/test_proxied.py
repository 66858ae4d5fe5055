"""Clients that read the environment reach the networks in `NO_PROXY` without the proxy."""

import pytest

from integration.isolated import result_of
from integration.proxies.proxied import ADDRESSES, ASKED, MODULE, Report

pytestmark = [pytest.mark.integration]


def test_a_network_in_no_proxy_is_asked_directly() -> None:
    found = result_of(MODULE, kind=Report, within=60).answers
    assert {answer.client for answer in found} == {"kube", "notifications"}
    direct = {
        "": set[str](),
        "10.96.0.0/12,fd00:10:96::/112": set(ADDRESSES),
        "10.0.0.0/16": set[str](),
        "10.96.0.1": {"10.96.0.1"},
    }
    assert len(found) == len(direct) * len(ASKED)
    for answer in found:
        is_direct = any(address in answer.server for address in direct[answer.no_proxy])
        assert answer.answered_by == ("server" if is_direct else "proxy"), answer
