"""A real API server takes the UpgradePolicies that the reader takes, and refuses each other with a message that names the field."""

import msgspec
import pytest

from common.api.opaque import Json
from common.upgrade import policy as upgrade_policy
from integration.crds.conftest import Kubectl
from support.builders.upgrade_policy import CAREFUL, GATE, ILLEGAL, LEGAL, a_policy

pytestmark = [pytest.mark.integration]


@pytest.mark.parametrize(
    ("spec", "field"), [pytest.param(*row, id=case) for case, row in ILLEGAL.items()]
)
def test_what_the_reader_refuses_is_refused_with_the_field(
    kubectl: Kubectl, spec: Json, field: str
) -> None:
    done = kubectl.run("create", "--dry-run=server", "-f", "-", obj=a_policy("illegal", spec))
    assert (done.returncode, field in done.stderr) == (1, True), done.stderr


def test_what_the_reader_takes_is_taken(kubectl: Kubectl) -> None:
    objects = [a_policy(f"legal-{number}", spec) for number, spec in enumerate(LEGAL.values())]
    created = kubectl.ok(
        "create", "-f", "-", obj={"apiVersion": "v1", "kind": "List", "items": objects}
    )
    assert created.count("created") == len(LEGAL)


@pytest.mark.parametrize("spec", [pytest.param(spec, id=case) for case, spec in LEGAL.items()])
def test_the_defaults_of_the_schema_are_those_of_the_reader(kubectl: Kubectl, spec: Json) -> None:
    stored = kubectl.ok(
        "create", "--dry-run=server", "-o", "json", "-f", "-", obj=a_policy("defaults", spec)
    )
    as_stored: Json = msgspec.json.decode(stored)["spec"]
    assert upgrade_policy.read("p", as_stored) == upgrade_policy.read("p", spec)


def test_an_unknown_field_is_refused(kubectl: Kubectl) -> None:
    done = kubectl.run(
        "create", "--validate=strict", "-f", "-", obj=a_policy("typo", {"bakes": "1m"})
    )
    assert 'unknown field "spec.bakes"' in done.stderr


def test_kubectl_get_shows_what_matters_and_wide_steps_and_gates(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_policy("shown", {**CAREFUL, "gates": [GATE]}))
    header, row = kubectl.ok("get", "up", "shown").splitlines()
    assert header.split() == ["NAME", "ACCEPTED", "ONFAILURE", "BAKE", "AGE"]
    assert row.split()[:3] == ["shown", "Rollback", "15m"]
    header, row = kubectl.ok("get", "up", "shown", "-o", "wide").splitlines()
    assert header.split() == ["NAME", "ACCEPTED", "ONFAILURE", "STEPS", "GATES", "BAKE", "AGE"]
    steps, gates = (msgspec.json.decode(each) for each in row.split()[2:4])
    assert steps == CAREFUL["steps"]
    assert gates == [GATE]


def test_the_status_is_a_subresource_with_conditions(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_policy("statused", CAREFUL))
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Read",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = msgspec.json.encode({"status": {"conditions": [condition]}}).decode()
    kubectl.ok("patch", "up", "statused", "--type=merge", "-p", patch)
    assert "status" not in kubectl.stored("up", "statused")
    kubectl.ok("patch", "up", "statused", "--subresource=status", "--type=merge", "-p", patch)
    assert kubectl.stored("up", "statused")["status"] == {"conditions": [condition]}
