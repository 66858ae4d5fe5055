"""Which fields of the overlay `production` a value of the chart decides, and which objects are there on a condition.

Everything else of an object is taken as it is. The namespace is that of the release, so its own object stays out; the suffixes of
ConfigMaps, by which kustomize restarts pods, become checksums in the pods' annotations.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from support.helm.markers import either, element, field, template, value
from support.manifests import NAMESPACE, SERVICES, Document

HEADER: Final = "# Made from deploy/overlays: pytest tests/integration/deploy/test_helm.py --update-golden\n"
CONFIG_MAP: Final = re.compile(r"\b(nats-config|operator-config|raybus-config)-[a-z0-9]{10}\b")
"""The name of a generated ConfigMap, with its suffix."""
CHECKSUM: Final = "checksum/config"

_INTERNAL: Final = ".Values.nats.enabled"
_EVERYWHERE: Final = "not .Values.watchNamespace"
_PODS: Final = {"Deployment", "StatefulSet", "Job", "CronJob"}
_NATS_ONLY: Final = re.compile(r"nats|nats-credentials|nats-rotation|nats-servers")


def templates(production: Sequence[Document], extras: Mapping[str, Sequence[Document]]) -> dict[str, str]:
    """Return the templates by file name; `extras` are further objects by the condition on which they are there."""
    parts: dict[str, list[str]] = {}
    for document in production:
        if document["kind"] != "Namespace":
            parts.setdefault(_file(document), []).append(_part(document, _condition(document)))
    for condition, documents in extras.items():
        parts.setdefault("rights.yaml", []).extend(_part(each, condition) for each in documents)
    return {name: HEADER + "".join(texts) for name, texts in parts.items()}


def plain(document: Document) -> Document:
    """Return an object without the suffixes of ConfigMaps, and without checksums."""
    text = CONFIG_MAP.sub(r"\1", msgspec.json.encode(document).decode())
    found: Document = msgspec.json.decode(text)
    meta = found.get("spec", {}).get("template", {}).get("metadata", {})
    if CHECKSUM in meta.get("annotations", {}):
        del meta["annotations"]
    return found


# --- objects ---------------------------------------------------------------------------------------------------------------


def _file(document: Document) -> str:
    name, kind = document["metadata"]["name"], document["kind"]
    if kind in {"ClusterRole", "ClusterRoleBinding"}:
        return "rights.yaml"
    if kind in {"ConfigMap", "PriorityClass", "NetworkPolicy"}:
        return {"ConfigMap": "config.yaml", "PriorityClass": "priority_class.yaml"}.get(kind, "network_policies.yaml")
    return f"{name}.yaml" if name in SERVICES else "nats.yaml"


def _condition(document: Document) -> str:
    name, kind = document["metadata"]["name"], document["kind"]
    if kind == "NetworkPolicy":
        closed = ".Values.networkPolicies.enabled"
        return f"and {closed} {_INTERNAL}" if _NATS_ONLY.fullmatch(name) else closed
    if kind == "PriorityClass":
        return ".Values.priorityClass.create"
    if name == "nats-streams":
        return ".Values.nats.streams"
    if name == "raybus-cluster-identity":
        return _EVERYWHERE
    return _INTERNAL if _NATS_ONLY.fullmatch(name) else ""


def _part(document: Document, condition: str) -> str:
    changed = msgspec.json.decode(CONFIG_MAP.sub(r"\1", msgspec.json.encode(document).decode()))
    _place(changed)
    if changed["kind"] in {"ClusterRole", "ClusterRoleBinding"} and not condition:
        return _anywhere(changed)
    if change := _CHANGES.get(changed["kind"]):
        change(changed)
    text = f"---\n{template(changed)}"
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _place(document: Document) -> None:
    """Put what lies in raybus' namespace into that of the release."""
    release = value(".Release.Namespace")
    if document["metadata"].get("namespace") == NAMESPACE:
        document["metadata"]["namespace"] = release
    if document["metadata"]["name"] == "raybus-kuberay-lease":
        document["metadata"]["namespace"] = value(".Values.kuberayNamespace")
    for subject in document.get("subjects", []):
        subject["namespace"] = release
    for rule in document.get("rules", []):
        if rule["resources"] == ["namespaces"] and rule["resourceNames"] == [NAMESPACE]:
            rule["resourceNames"] = [release]


def _anywhere(document: Document) -> str:
    """Return a right that holds everywhere, or in each namespace that is named."""
    for place in (document, document.get("roleRef", {})):
        if "kind" in place:
            kind = place["kind"]
            place["kind"] = either("$namespace", kind.removeprefix("Cluster"), kind)
    document["metadata"][field("$namespace", "namespace")] = value("$namespace")
    text = template(document).replace("{{ .Release", "{{ $.Release")
    return f'{{{{- range $namespace := (.Values.watchNamespace | default (list "")) }}}}\n---\n{text}{{{{- end }}}}\n'


# --- fields ----------------------------------------------------------------------------------------------------------------


def _pods(document: Document) -> None:
    """Let values decide where images come from and where pods run."""
    spec = document["spec"]
    pod = (spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec)["template"]["spec"]
    for container in pod["containers"]:
        name = container["image"].rpartition("/")[2].partition(":")[0]
        container["image"] = value(f'include "raybus.image" (list . "{name}")')
        container["imagePullPolicy"] = value(".Values.image.pullPolicy")
    if "priorityClassName" in pod:
        del pod["priorityClassName"]
        pod[field(".Values.priorityClass.name", "priorityClassName")] = value(".Values.priorityClass.name")
    for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
        pod[field(f".Values.{name}", name)] = value(f"toJson .Values.{name}")


def _restarts(document: Document, *configs: str) -> None:
    """Have pods replaced when what they read at their start changes."""
    parts = " ".join(f'(include "raybus.{each}" .)' for each in configs)
    checksum = {CHECKSUM: value(f'printf "{"%s" * len(configs)}" {parts} | sha256sum')}
    document["spec"]["template"]["metadata"]["annotations"] = checksum


def _deployment(document: Document) -> None:
    name = document["metadata"]["name"]
    words = name.split("-")
    camel = words[0] + "".join(word.title() for word in words[1:])
    document["spec"]["replicas"] = value(f".Values.replicas.{camel}")
    document["spec"]["template"]["spec"]["containers"][0]["resources"] = value("toJson .Values.resources")
    _pods(document)
    _restarts(document, "settings", *(["operator"] if name == "cluster-reconciler" else []))


def _stateful_set(document: Document) -> None:
    spec = document["spec"]
    spec["replicas"] = value(".Values.nats.servers")
    pod = spec["template"]["spec"]
    pod["containers"][0]["resources"] = value("toJson .Values.nats.resources")
    claim = spec.pop("volumeClaimTemplates")[0]
    claim["spec"]["resources"]["requests"]["storage"] = "SIZE"
    with_size = _json([claim]).replace('"SIZE"', "{{ .Values.nats.storage.size | quote }}")
    chosen = '{{ with .Values.nats.storage.className }},"storageClassName":{{ quote . }}{{ end }}'
    body = with_size.replace('"accessModes":["ReadWriteOnce"]', f'"accessModes":["ReadWriteOnce"]{chosen}')
    spec[field(".Values.nats.storage.size", "volumeClaimTemplates")] = f"⟦{body}⟧"
    memory = f"⟦{_json({'name': 'jetstream', 'emptyDir': {'sizeLimit': '1Gi'}})}⟧"
    pod["volumes"].append(element("not .Values.nats.storage.size", memory))
    _pods(document)
    _restarts(document, "nats", "settings")


def _config_map(document: Document) -> None:
    helper = {"nats-config": "nats", "raybus-config": "settings", "operator-config": "operator"}
    document["data"] = value(f'include "raybus.{helper[document["metadata"]["name"]]}" .')


def _priority_class(document: Document) -> None:
    document["metadata"]["name"] = value(".Values.priorityClass.name")
    document["value"] = value("int .Values.priorityClass.value")


def _network_policy(document: Document) -> None:
    if document["metadata"]["name"] == "nats-clients":
        anywhere = [{"ports": [{"protocol": "TCP", "port": "PORT"}]}]
        outside = _json(anywhere).replace('"PORT"', "{{ .Values.nats.port }}")
        document["spec"]["egress"] = either(_INTERNAL, _json(document["spec"]["egress"]), outside)


def _json(data: object) -> str:
    return msgspec.json.encode(data).decode()


_CHANGES: Final[dict[str, Callable[[Document], None]]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "Job": _pods,
    "CronJob": _pods,
    "ConfigMap": _config_map,
    "PriorityClass": _priority_class,
    "NetworkPolicy": _network_policy,
}
