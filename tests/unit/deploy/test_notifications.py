"""The component for notifications, and the example overlay that uses it."""

import yaml

from nats_admin import subscribers
from notifications import settings
from support import manifests
from support.manifests import BASE, DEPLOY, NAMESPACE, ROOT

ALL = manifests.read(DEPLOY / "components" / "notifications")
(CONTAINER,) = manifests.containers(ALL).values()
EXAMPLE = ROOT / "examples" / "notifications"


def test_everything_is_in_the_namespace_of_raybus() -> None:
    assert {each["metadata"]["namespace"] for each in ALL} == {NAMESPACE}


def test_two_processes_never_run_at_once_and_share_one_entry_for_their_keys() -> None:
    spec = manifests.named(ALL, "Deployment", "notifications")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert {"name": "RAYBUS_IDENTITY", "value": "notifications"} in CONTAINER["env"]


def test_the_volumes_are_where_the_process_reads_them() -> None:
    mounted = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    paths = settings.Paths()
    assert mounted["choices"] == str(paths.notifications_file.parent)
    assert mounted["secrets"] == str(paths.notifications_secrets)


def test_only_scrapers_come_in_and_only_webhooks_and_the_api_server_are_reached() -> None:
    policy = manifests.named(ALL, "NetworkPolicy", "notifications")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= (
        manifests.named(ALL, "Deployment", "notifications")["spec"]["template"]["metadata"][
            "labels"
        ].items()
    )
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [8080]
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [443, 6443]
    clients = manifests.named(manifests.read(BASE), "NetworkPolicy", "nats-clients")["spec"][
        "podSelector"
    ]
    assert clients == {"matchLabels": {"raybus.io/nats-client": "true"}}


def test_the_example_names_each_destination_as_a_subscriber() -> None:
    kustomization = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())
    generated = {each["name"]: each for each in kustomization["configMapGenerator"]}
    (literal,) = generated["nats-config"]["literals"]
    named = subscribers.parse_subscribers(literal.removeprefix("NATS_SUBSCRIBERS="))
    choices = settings.decode((EXAMPLE / "notifications.yaml").read_bytes())
    assert [each.name for each in named] == [each.name for each in choices.destinations]
