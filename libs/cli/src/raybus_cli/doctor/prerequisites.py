"""The checks of `raybus doctor --pre`, and checks that apply before and after an installation."""

from collections.abc import Iterator
from typing import Final, cast

from common import errors, feature_gates
from common.api.opaque import Json
from common.feature_gates import Gate
from crd_generator import definitions as crds
from crd_generator import upgrade_policy
from raybus_cli.doctor import check
from raybus_cli.doctor.check import Category, Check, CheckState, Hint
from raybus_cli.doctor.facts import MTLS_SUBJECT, Facts, Right, Watching

OLDEST: Final = (1, 27)
"""Oldest minor version of Kubernetes that raybus is tested with."""
MAX_NAMED: Final = 20
"""Maximum number of missing rights that a check lists."""
REMEDIES: Final = {
    "you": "request them",
    MTLS_SUBJECT: "add deploy/components/mtls to the overlay; Helm adds them with the gate",
}
"""Remedies for missing rights, by subject."""
APPLY: Final = "apply them: 'kubectl apply --server-side -k deploy/crds'"
APPLY_POLICIES: Final = (
    f"apply it: 'kubectl apply --server-side -f deploy/crds/{upgrade_policy.FILE}'"
)


def before_installation(facts: Facts) -> list[Check]:
    """Return the checks of a cluster in which raybus is to be installed."""
    return [
        *check.of(Category.KUBERNETES, Hint.INSTALL, server(facts), _policies(facts)),
        *check.of(Category.DEFINITIONS, Hint.UPGRADE, *definitions(facts, is_installed=False)),
        *check.of(Category.NATS, Hint.INSTALL, _storage(facts)),
        *check.of(Category.GATEWAY_API, Hint.GATEWAY_API, gateways(facts)),
        *check.of(Category.OPERATORS, Hint.MIGRATION, kuberay(facts, is_installed=False)),
        *check.of(Category.RIGHTS, Hint.RIGHTS, *rights(facts)),
    ]


def server(facts: Facts) -> Check:
    """Check the version of the API server."""
    name, text = "Kubernetes", facts.server_version
    parts = text.removeprefix("v").split(".")
    if len(parts) < len(OLDEST) or not all(part.isdigit() for part in parts[: len(OLDEST)]):
        return Check(name=name, state=CheckState.UNKNOWN, text=f"version {text or 'unknown'}")
    if (int(parts[0]), int(parts[1])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Check(
            name=name,
            state=CheckState.WARNING,
            text=f"{text} is older than {wanted}",
            remedy="upgrade the cluster",
        )
    return Check(name=name, state=CheckState.OK, text=text)


def gates(facts: Facts) -> Iterator[Check]:
    """Check the prerequisites of the enabled feature gates."""
    try:
        feature_gates.check_kubernetes(facts.gates, facts.server_version)
    except errors.InvalidSpec as problem:
        text, _, remedy = str(problem).partition(": ")
        yield Check(name="feature gates", state=CheckState.FAILED, text=text, remedy=remedy)
    if Gate.MTLS in facts.gates:
        name = f"feature gate {Gate.MTLS}"
        match facts.has_cert_manager:
            case True:
                yield Check(name=name, state=CheckState.OK, text="cert-manager.io/v1 is served")
            case False:
                text = "cert-manager.io/v1 is not served; RayClusters with tlsOptions are invalid"
                remedy = f"install cert-manager, or set {Gate.MTLS}=false"
                yield Check(name=name, state=CheckState.FAILED, text=text, remedy=remedy)
            case None:
                text = "the API server does not list the group cert-manager.io"
                yield Check(name=name, state=CheckState.UNKNOWN, text=text)


def definitions(facts: Facts, *, is_installed: bool = True) -> Iterator[Check]:
    """Yield one check for each CRD.

    Before an installation any CRD may be absent. After it, a missing CRD fails, except that of
    UpgradePolicy, which is a warning.
    """
    policies = upgrade_policy.definition()
    optional = policies["metadata"]["name"]
    ours = {
        each["metadata"]["name"]: each
        for each in (*crds.installed_definitions().values(), policies)
    }
    for name, want in ours.items():
        title = f"CRD {name}"
        if facts.definitions is None:
            yield Check(
                name=title,
                state=CheckState.UNKNOWN,
                text="you may not read CustomResourceDefinitions",
            )
            continue
        have = facts.definitions.get(name)
        if have is None and not is_installed:
            yield Check(
                name=title, state=CheckState.OK, text="absent, so deploy/crds can be applied"
            )
            continue
        if have is None and name == optional:
            text = "is not installed; RayServices have no upgrade policies"
            yield Check(name=title, state=CheckState.WARNING, text=text, remedy=APPLY_POLICIES)
            continue
        if have is None:
            yield Check(name=title, state=CheckState.FAILED, text="is not installed", remedy=APPLY)
            continue
        missing = sorted(_fields(want) - _fields(have))
        if missing:
            text = f"lacks {len(missing)} field(s), such as {missing[0]}"
            remedy = APPLY_POLICIES if name == optional else APPLY
            yield Check(name=title, state=CheckState.WARNING, text=text, remedy=remedy)
        else:
            yield Check(name=title, state=CheckState.OK, text="installed, with all fields")


def _fields(definition: Json) -> set[str]:
    """Return the paths of all spec fields in the stored version of a CRD, down to worker groups."""
    versions = cast("list[Json]", definition["spec"]["versions"])
    stored = next((each for each in versions if each.get("storage")), None)
    schema: Json = (
        {} if stored is None else stored["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
    )
    return set(_paths(schema, "spec", depth=4))


def _paths(schema: Json, path: str, *, depth: int) -> Iterator[str]:
    yield path
    inner: Json = cast("Json", schema.get("items") or schema).get("properties") or {}
    if depth and not path.endswith("template"):
        for name, each in inner.items():
            yield from _paths(cast("Json", each), f"{path}.{name}", depth=depth - 1)


def gateways(facts: Facts) -> Check:
    """Check that the Gateway API and the GatewayClasses named in RayServices are available."""
    name, needed = "Gateway API", ", ".join(sorted(facts.asked_classes))
    if facts.gateway_versions is None:
        return Check(
            name=name, state=CheckState.UNKNOWN, text="the API server does not list its groups"
        )
    if not facts.gateway_versions:
        text = "is not installed; upgrades in steps need it"
        state = CheckState.FAILED if needed else CheckState.WARNING
        return Check(
            name=name,
            state=state,
            text=text,
            remedy="install it and a controller for it, such as Envoy Gateway",
        )
    accepted = {
        each.metadata.name
        for each in facts.gateway_classes or []
        if any(
            (condition.type, condition.status) == ("Accepted", "True")
            for condition in each.status.conditions
        )
    }
    missing = sorted(facts.asked_classes - accepted)
    if missing and facts.gateway_classes is not None:
        text = f"no controller has accepted GatewayClass {missing[0]}, which a RayService names"
        return Check(
            name=name,
            state=CheckState.FAILED,
            text=text,
            remedy="install a controller that serves it",
        )
    served = (
        f"{', '.join(facts.gateway_versions)}; accepted classes: "
        f"{', '.join(sorted(accepted)) or 'none'}"
    )
    return Check(name=name, state=CheckState.OK, text=served)


def kuberay(facts: Facts, *, is_installed: bool = True) -> Check:
    """Check that no KubeRay operator watches the namespaces of raybus."""
    name = "KubeRay"
    if facts.kuberay is None:
        return Check(
            name=name,
            state=CheckState.UNKNOWN,
            text="you may not read Deployments of all namespaces",
        )
    if not facts.kuberay:
        text = "does not run beside raybus" if is_installed else "does not run"
        return Check(name=name, state=CheckState.OK, text=text)
    shared = [each for each in facts.kuberay if not _is_apart(each, facts.watch_namespaces)]
    if not shared:
        text = (
            f"{_running(facts.kuberay)}; raybus watches {', '.join(sorted(facts.watch_namespaces))}"
        )
        return Check(name=name, state=CheckState.OK, text=text)
    remedy = (
        "two operators on the same objects overwrite each other unless they share the leader "
        "Lease: scale one to 0, "
        "or give each its own namespaces"
        if is_installed
        else "take it over: 'raybus migrate check', then deploy/overlays/migration"
    )
    return Check(name=name, state=CheckState.WARNING, text=_running(shared), remedy=remedy)


def _is_apart(found: Watching, ours: frozenset[str]) -> bool:
    """Return whether an operator and raybus have no watched namespace in common.

    False if the namespaces of one of them are unknown.
    """
    return bool(found.namespaces and ours) and not found.namespaces & ours


def _running(found: list[Watching]) -> str:
    scopes = (
        f" and watches {', '.join(sorted(each.namespaces))}" if each.namespaces else ""
        for each in found
    )
    return (
        "runs in "
        f"{', '.join(f'{each.place}{scope}' for each, scope in zip(found, scopes, strict=True))}"
    )


def _named(right: Right) -> str:
    where = f" in {right.namespace}" if right.namespace else ""
    return f"{right.verb} {right.resource}{where}"


def rights(facts: Facts) -> Iterator[Check]:
    """Yield one check for each subject, with the missing rights."""
    for subject in dict.fromkeys(each.subject for each in facts.rights):
        own = [each for each in facts.rights if each.subject == subject]
        name = "your rights" if subject == "you" else f"rights of {subject}"
        lacking = [_named(each) for each in own if each.is_allowed is False]
        if lacking:
            remedy = REMEDIES.get(subject, "apply the Roles and bindings of deploy/ again")
            more = f" and {len(lacking) - MAX_NAMED} more" if len(lacking) > MAX_NAMED else ""
            yield Check(
                name=name,
                state=CheckState.FAILED,
                text=f"lacking: {', '.join(lacking[:MAX_NAMED])}{more}",
                remedy=remedy,
            )
        elif any(each.is_allowed is None for each in own):
            yield Check(name=name, state=CheckState.UNKNOWN, text="you may not ask for them")
        else:
            yield Check(name=name, state=CheckState.OK, text=f"{len(own)} of {len(own)} granted")


def _policies(facts: Facts) -> Check:
    name = "admission policies"
    if facts.has_admission_policies is None:
        return Check(
            name=name, state=CheckState.UNKNOWN, text="the API server does not list its resources"
        )
    if not facts.has_admission_policies:
        text = "ValidatingAdmissionPolicy v1 is not served"
        remedy = (
            "upgrade Kubernetes to 1.30, or remove rights/own-namespace from the overlay and do "
            "not use deploy/admission"
        )
        return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
    return Check(name=name, state=CheckState.OK, text="ValidatingAdmissionPolicy v1 is served")


def _storage(facts: Facts) -> Check:
    name, found = "storage class", facts.storage_classes
    if found is None:
        return Check(name=name, state=CheckState.UNKNOWN, text="you may not read StorageClasses")
    default = next((each.metadata.name for each in found if each.is_default), None)
    if default is not None:
        return Check(name=name, state=CheckState.OK, text=f"{default} is the default")
    names = ", ".join(sorted(each.metadata.name for each in found))
    text = f"none of {names} is the default" if names else "there is none"
    remedy = (
        "mark one as the default, name one in an overlay of your own, or use "
        "deploy/overlays/local, which needs no volume"
    )
    return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
