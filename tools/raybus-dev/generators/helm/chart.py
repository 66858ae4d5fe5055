"""Defines how chart values change the objects of the overlay `production`.

All other fields are copied. The namespace is the release's, so the Namespace object is left out.
kustomize restarts pods by hash suffixes of ConfigMap names; the chart does it by checksums in
annotations of the pods.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from generators.helm.markers import either, element, field, template, value
from support.manifests import NAMESPACE, SERVICES, Document

HEADER: Final = "# Made from deploy/overlays: make golden\n"
CONFIG_MAP: Final = re.compile(r"\b(nats-config|operator-config|raybus-config)-[a-z0-9]{10}\b")
"""Pattern for the name of a ConfigMap that kustomize generates, with its hash suffix."""
JOB: Final = re.compile(r"^nats-streams-[0-9a-f]{10}$")
"""Pattern for the name of the chart's Job, with the hash of its spec."""
CHECKSUM: Final = "checksum/config"

_INTERNAL: Final = ".Values.nats.enabled"
_JOB_SPEC: Final = "raybus.streamsJob"
_OPENSHIFT: Final = ".Values.openshift"
_GATE: Final = 'include "raybus.gate"'
_EVERYWHERE: Final = "not .Values.watchNamespace"
_CONFIGURED: Final = {"cluster-reconciler", "job-reconciler"}
"""Services that read the configuration file of KubeRay's operator."""
_ADMISSION: Final = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
_AGGREGATED: Final = "rbac.authorization.k8s.io/aggregate-to-"
"""Prefix of labels on ClusterRoles whose rules Kubernetes adds to the users' ClusterRoles.

A Role cannot be added in this way.
"""
_NATS_ONLY: Final = re.compile(r"nats|nats-keys-.*|nats-servers|nats-subscriber")
_STREAMS: Final = re.compile(r"nats-streams|nats-keys-provisioner(-outside)?")


def templates(
    production: Sequence[Document], extras: Mapping[str, Sequence[Document]]
) -> dict[str, str]:
    """Return the chart's templates by file name.

    `production` are the objects of the overlay. `extras` maps a Helm condition to the objects that
    are created only if it is true.
    """
    parts: dict[str, list[str]] = {}
    for document in production:
        if document["kind"] != "Namespace":
            parts.setdefault(_file(document), []).append(_part(document, _condition(document)))
    for condition, documents in extras.items():
        parts.setdefault("rights.yaml", []).extend(
            _part(document, condition) for document in documents
        )
    return {name: HEADER + "".join(texts) for name, texts in parts.items()}


def plain(document: Document) -> Document:
    """Return an object without hashes in names of ConfigMaps and Jobs, and without checksums.

    In this form, objects of the chart and of the overlay can be compared.
    """
    text = CONFIG_MAP.sub(r"\1", msgspec.json.encode(document).decode())
    found: Document = msgspec.json.decode(text)
    found["metadata"]["name"] = JOB.sub("nats-streams", found["metadata"]["name"])
    meta = found.get("spec", {}).get("template", {}).get("metadata", {})
    if CHECKSUM in meta.get("annotations", {}):
        del meta["annotations"]
    return found


# --- objects --------------------------------------------------------------------------------------


def _file(document: Document) -> str:
    name, kind = document["metadata"]["name"], document["kind"]
    if kind in {"ClusterRole", "ClusterRoleBinding", *_ADMISSION}:
        return "rights.yaml"
    if name.startswith("nats-keys-") or name == "nats-servers":
        return "nats.yaml" if kind != "NetworkPolicy" else "network_policies.yaml"
    if kind in {"ConfigMap", "PriorityClass", "NetworkPolicy"}:
        return {"ConfigMap": "config.yaml", "PriorityClass": "priority_class.yaml"}.get(
            kind, "network_policies.yaml"
        )
    return f"{name}.yaml" if name in SERVICES else "nats.yaml"


def _condition(document: Document) -> str:
    name, kind = document["metadata"]["name"], document["kind"]
    if kind == "NetworkPolicy":
        closed = ".Values.networkPolicies.enabled"
        return f"and {closed} {_INTERNAL}" if _NATS_ONLY.fullmatch(name) else closed
    if kind == "PriorityClass":
        return ".Values.priorityClass.create"
    if _STREAMS.fullmatch(name):
        return ".Values.nats.streams"
    is_of_users = any(
        label.startswith(_AGGREGATED) for label in document["metadata"].get("labels", {})
    )
    if name == "raybus-cluster-identity" or kind in _ADMISSION or is_of_users:
        return _EVERYWHERE
    return _INTERNAL if _NATS_ONLY.fullmatch(name) else ""


def _part(document: Document, condition: str) -> str:
    changed = msgspec.json.decode(CONFIG_MAP.sub(r"\1", msgspec.json.encode(document).decode()))
    _place(changed)
    if changed["kind"] in {"ClusterRole", "ClusterRoleBinding"} and (
        not condition or condition.startswith(_GATE)
    ):
        text = _anywhere(changed)
        return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text
    if change := _CHANGES.get(changed["kind"]):
        change(changed)
    text, definition = f"---\n{template(changed)}", ""
    if changed["kind"] == "Job":
        text, definition = _named_by_its_spec(text)
    return definition + (
        f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text
    )


def _named_by_its_spec(text: str) -> tuple[str, str]:
    """Return the template of the Job `nats-streams`, and a named template (`define`) with its spec.

    The Job's name contains a hash of the spec. A Job's pod template cannot be changed, so an
    upgrade that changes it creates a Job with a new name. Helm deletes the earlier Job, even if it
    has not finished.
    """
    head, spec = text.split("\nspec:\n")
    name = f'nats-streams-{{{{ include "{_JOB_SPEC}" . | sha256sum | trunc 10 }}}}'
    head = head.replace("\n  name: nats-streams\n", f"\n  name: {name}\n")
    definition = f'{{{{- define "{_JOB_SPEC}" }}}}\n{spec}{{{{- end }}}}\n'
    return f'{head}\nspec: {{{{- include "{_JOB_SPEC}" . }}}}\n', definition


def _place(document: Document) -> None:
    """Replace the namespace `raybus` in an object by the namespace of the release."""
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
    """Return the template of an RBAC object that grants rights in all namespaces.

    If the chart value `watchNamespace` is set, the template yields one object in each of its
    namespaces instead.
    """
    for place in (document, document.get("roleRef", {})):
        if "kind" in place:
            kind = place["kind"]
            place["kind"] = either("$namespace", kind.removeprefix("Cluster"), kind)
    document["metadata"][field("$namespace", "namespace")] = value("$namespace")
    text = template(document).replace("{{ .Release", "{{ $.Release")
    return (
        f'{{{{- range $namespace := (.Values.watchNamespace | default (list "")) '
        f"}}}}\n---\n{text}{{{{- end }}}}\n"
    )


# --- fields ---------------------------------------------------------------------------------------


def _pods(document: Document) -> None:
    """Let chart values set the images, the users and the placement of the object's pods."""
    pod = document["spec"]["template"]["spec"]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        name = container["image"].rpartition("/")[2].partition(":")[0]
        container["image"] = value(f'include "raybus.image" (list . "{name}")')
        container["imagePullPolicy"] = value(".Values.image.pullPolicy")
    context = pod["securityContext"]
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        context[field(f"not {_OPENSHIFT}", name)] = context.pop(name)
    if "priorityClassName" in pod:
        del pod["priorityClassName"]
        pod[field(".Values.priorityClass.name", "priorityClassName")] = value(
            ".Values.priorityClass.name"
        )
    for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
        pod[field(f".Values.{name}", name)] = value(f"toJson .Values.{name}")


def _outside(pod: Document, user: str, folder: str = "nats", prefix: str = "RAYBUS_NATS") -> None:
    """If the chart does not install NATS, mount the Secret with the key for an external NATS.

    The user of the chart creates the Secret. Environment variables that begin with `prefix` contain
    the paths of its files; an empty `prefix` adds no variables.
    """
    volume = {
        "name": f"{folder}-user",
        "secret": {"secretName": f"nats-user-{user}", "defaultMode": 0o440},
    }
    mount = {"name": f"{folder}-user", "mountPath": f"/etc/raybus/{folder}", "readOnly": True}
    pod["volumes"].append(_unless_internal(volume))
    container = pod["containers"][0]
    container["volumeMounts"].append(_unless_internal(mount))
    if prefix:
        for name, file in (("SEED", "seed"), ("CA", "ca.crt")):
            variable = {"name": f"{prefix}_{name}_FILE", "value": f"/etc/raybus/{folder}/{file}"}
            container["env"].append(_unless_internal(variable))


def _unless_internal(value: Document) -> str:
    return element(f"not {_INTERNAL}", f"⟦{_json(value)}⟧")


def _job(document: Document) -> None:
    pod = document["spec"]["template"]["spec"]
    _outside(pod, "provisioner")
    _outside(pod, "provisioner-outside", folder="outside", prefix="")
    pod["containers"][0]["command"].append(
        element(f"not {_INTERNAL}", "--outside-seed=/etc/raybus/outside/seed")
    )
    _pods(document)
    _restarts(document, "nats", "settings")


def _restarts(document: Document, *configs: str) -> None:
    """Make Helm replace the pods when one of `configs`, which they read at their start, changes."""
    parts = " ".join(f'(include "raybus.{config}" .)' for config in configs)
    checksum = {CHECKSUM: value(f'printf "{"%s" * len(configs)}" {parts} | sha256sum')}
    document["spec"]["template"]["metadata"]["annotations"] = checksum


def _deployment(document: Document) -> None:
    name = document["metadata"]["name"]
    parts = name.split("-")
    camel = parts[0] + "".join(part.title() for part in parts[1:])
    document["spec"]["replicas"] = value(f".Values.replicas.{camel}")
    document["spec"]["template"]["spec"]["containers"][0]["resources"] = value(
        "toJson .Values.resources"
    )
    _outside(document["spec"]["template"]["spec"], name)
    _pods(document)
    _restarts(document, "settings", *(["operator"] if name in _CONFIGURED else []))


def _stateful_set(document: Document) -> None:
    spec = document["spec"]
    spec["replicas"] = value(".Values.nats.servers")
    pod = spec["template"]["spec"]
    pod["containers"][0]["resources"] = value("toJson .Values.nats.resources")
    claim = spec.pop("volumeClaimTemplates")[0]
    claim["spec"]["resources"]["requests"]["storage"] = "SIZE"
    with_size = _json([claim]).replace('"SIZE"', "{{ .Values.nats.storage.size | quote }}")
    chosen = '{{ with .Values.nats.storage.className }},"storageClassName":{{ quote . }}{{ end }}'
    body = with_size.replace(
        '"accessModes":["ReadWriteOnce"]', f'"accessModes":["ReadWriteOnce"]{chosen}'
    )
    spec[field(".Values.nats.storage.size", "volumeClaimTemplates")] = f"⟦{body}⟧"
    memory = f"⟦{_json({'name': 'jetstream', 'emptyDir': {'sizeLimit': '1Gi'}})}⟧"
    pod["volumes"].append(element("not .Values.nats.storage.size", memory))
    _pods(document)
    _restarts(document, "nats", "settings")


def _config_map(document: Document) -> None:
    if "data" not in document:
        return
    helper = {"nats-config": "nats", "raybus-config": "settings", "operator-config": "operator"}
    document["data"] = value(f'include "raybus.{helper[document["metadata"]["name"]]}" .')


def _priority_class(document: Document) -> None:
    document["metadata"]["name"] = value(".Values.priorityClass.name")
    document["value"] = value("int .Values.priorityClass.value")


def _network_policy(document: Document) -> None:
    if document["metadata"]["name"] == "dns":
        document["spec"]["egress"][0]["ports"] += [
            element(_OPENSHIFT, f"⟦{_json({'port': 5353, 'protocol': protocol})}⟧")
            for protocol in ("UDP", "TCP")
        ]
    if document["metadata"]["name"] == "nats-clients":
        anywhere = [{"ports": [{"protocol": "TCP", "port": "PORT"}]}]
        outside = _json(anywhere).replace('"PORT"', "{{ .Values.nats.port }}")
        document["spec"]["egress"] = either(_INTERNAL, _json(document["spec"]["egress"]), outside)


def _policy(document: Document) -> None:
    """Replace the namespace and the accounts in an admission policy by those of the release."""
    release = value(".Release.Namespace")
    spec = document["spec"]
    for expression in spec["matchConditions"]:
        expression["expression"] = expression["expression"].replace(
            f":{NAMESPACE}:", f":{release}:"
        )
    for expression in (
        spec["matchConstraints"].get("namespaceSelector", {}).get("matchExpressions", [])
    ):
        expression["values"] = [
            release if name == NAMESPACE else name for name in expression["values"]
        ]


def _json(data: object) -> str:
    return msgspec.json.encode(data).decode()


_CHANGES: Final[dict[str, Callable[[Document], None]]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "Job": _job,
    "ConfigMap": _config_map,
    "PriorityClass": _priority_class,
    "NetworkPolicy": _network_policy,
    "ValidatingAdmissionPolicy": _policy,
}
