"""The checks of `raybus doctor --pre`, and checks that apply before and after an installation."""

from collections.abc import Iterator
from typing import Final

from common import errors, feature_gates, untrusted
from common.feature_gates import FeatureGate
from crd_generator import comparison, upgrade_policy
from crd_generator import definitions as crds
from crd_generator.comparison import ChangeKind
from raybus_cli.doctor import check
from raybus_cli.doctor.check import Category, Check, CheckState, Hint
from raybus_cli.doctor.facts import MTLS_SUBJECT, Facts, Right, Watching

MIN_SERVER_VERSION: Final = (1, 31)
"""Oldest minor version of Kubernetes that raybus supports: the oldest that its tests run on.

The admission policies of `deploy/rights/own-namespace` need 1.30."""
MAX_NAMED: Final = 20
"""Maximum number of missing rights that a check lists."""
REMEDIES: Final = {
    "you": "request them",
    MTLS_SUBJECT: "add deploy/components/mtls to the overlay; Helm adds them with the gate",
}
"""Remedies for missing rights, by subject."""
APPLY_CRDS: Final = "apply them: 'kubectl apply --server-side -k deploy/crds'"
APPLY_POLICIES: Final = (
    f"apply it: 'kubectl apply --server-side -f deploy/crds/{upgrade_policy.FILE}'"
)


def check_before_installation(facts: Facts) -> list[Check]:
    """Return the checks of a cluster in which raybus is to be installed."""
    return [
        *check.categorize(
            Category.KUBERNETES, Hint.INSTALL, check_server(facts), _check_policies(facts)
        ),
        *check.categorize(
            Category.DEFINITIONS, Hint.UPGRADE, *check_definitions(facts, is_installed=False)
        ),
        *check.categorize(Category.NATS, Hint.INSTALL, _check_storage(facts)),
        *check.categorize(Category.GATEWAY_API, Hint.GATEWAY_API, check_gateways(facts)),
        *check.categorize(
            Category.OPERATORS, Hint.MIGRATION, check_kuberay(facts, is_installed=False)
        ),
        *check.categorize(Category.RIGHTS, Hint.RIGHTS, *check_rights(facts)),
    ]


def check_server(facts: Facts) -> Check:
    """Check the version of the API server."""
    name, text = "Kubernetes", facts.server_version
    parts = text.removeprefix("v").split(".")
    if len(parts) < len(MIN_SERVER_VERSION) or not all(
        part.isdigit() for part in parts[: len(MIN_SERVER_VERSION)]
    ):
        return Check(name=name, state=CheckState.UNKNOWN, text=f"version {text or 'unknown'}")
    if (int(parts[0]), int(parts[1])) < MIN_SERVER_VERSION:
        wanted = ".".join(map(str, MIN_SERVER_VERSION))
        return Check(
            name=name,
            state=CheckState.WARNING,
            text=f"{text} is older than {wanted}",
            remedy="upgrade the cluster",
        )
    return Check(name=name, state=CheckState.OK, text=text)


def check_gates(facts: Facts) -> Iterator[Check]:
    """Check the prerequisites of the enabled feature gates."""
    try:
        feature_gates.check_kubernetes(facts.gates, facts.server_version)
    except errors.InvalidSpec as problem:
        text, _, remedy = str(problem).partition(": ")
        yield Check(name="feature gates", state=CheckState.FAILED, text=text, remedy=remedy)
    if FeatureGate.MTLS in facts.gates:
        name = f"feature gate {FeatureGate.MTLS}"
        match facts.has_cert_manager:
            case True:
                yield Check(name=name, state=CheckState.OK, text="cert-manager.io/v1 is served")
            case False:
                text = "cert-manager.io/v1 is not served; RayClusters with tlsOptions are invalid"
                remedy = f"install cert-manager, or set {FeatureGate.MTLS}=false"
                yield Check(name=name, state=CheckState.FAILED, text=text, remedy=remedy)
            case None:
                text = "the API server does not list the group cert-manager.io"
                yield Check(name=name, state=CheckState.UNKNOWN, text=text)


def check_definitions(facts: Facts, *, is_installed: bool = True) -> Iterator[Check]:
    """Yield one check for each CRD.

    Before an installation, any CRD may be absent. Later, a missing CRD is a failure, except for
    UpgradePolicy, where it is a warning.
    """
    policies = upgrade_policy.definition()
    optional = policies["metadata"]["name"]
    ours = {
        definition["metadata"]["name"]: definition
        for definition in (*crds.all_definitions().values(), policies)
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
            yield Check(
                name=title, state=CheckState.FAILED, text="is not installed", remedy=APPLY_CRDS
            )
            continue
        changes = comparison.compare(have, want)
        missing = sorted(change.path for change in changes if change.kind is ChangeKind.ADDED)
        if missing:
            text = f"lacks {len(missing)} field(s), such as {missing[0]}"
            remedy = APPLY_POLICIES if name == optional else APPLY_CRDS
            yield Check(name=title, state=CheckState.WARNING, text=text, remedy=remedy)
        else:
            yield Check(name=title, state=CheckState.OK, text="installed, with all fields")


def check_gateways(facts: Facts) -> Check:
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
        gateway_class.metadata.name
        for gateway_class in facts.gateway_classes or []
        if any(
            (condition.type, condition.status) == ("Accepted", "True")
            for condition in gateway_class.status.conditions
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


def check_kuberay(facts: Facts, *, is_installed: bool = True) -> Check:
    """Check that no KubeRay operator watches the namespaces of raybus.

    Before an installation (`is_installed` is False), the remedy is to migrate from KubeRay.
    """
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
    shared = [
        operator for operator in facts.kuberay if not _is_apart(operator, facts.watch_namespaces)
    ]
    if not shared:
        watched = ", ".join(sorted(facts.watch_namespaces))
        text = f"{_describe_running(facts.kuberay)}; raybus watches {watched}"
        return Check(name=name, state=CheckState.OK, text=text)
    remedy = (
        "two operators on the same objects overwrite each other unless they share the leader "
        "Lease: scale one to 0, "
        "or give each its own namespaces"
        if is_installed
        else "take it over: 'raybus migrate check', then deploy/overlays/migration"
    )
    return Check(name=name, state=CheckState.WARNING, text=_describe_running(shared), remedy=remedy)


def _is_apart(operator: Watching, ours: frozenset[str]) -> bool:
    """Return whether an operator watches none of the namespaces that raybus watches (`ours`).

    Unknown namespaces of the operator or of raybus count as shared.
    """
    return bool(operator.namespaces and ours) and not operator.namespaces & ours


def _describe_running(operators: list[Watching]) -> str:
    scopes = (
        f" and watches {', '.join(sorted(operator.namespaces))}" if operator.namespaces else ""
        for operator in operators
    )
    places = (f"{operator.place}{scope}" for operator, scope in zip(operators, scopes, strict=True))
    return f"runs in {', '.join(places)}"


def _describe_right(right: Right) -> str:
    where = f" in {right.namespace}" if right.namespace else ""
    return f"{right.verb} {right.resource}{where}"


def check_rights(facts: Facts) -> Iterator[Check]:
    """Yield one check for each subject, with the missing rights."""
    for subject in dict.fromkeys(right.subject for right in facts.rights):
        own = [right for right in facts.rights if right.subject == subject]
        name = "your rights" if subject == "you" else f"rights of {subject}"
        lacking = [_describe_right(right) for right in own if right.is_allowed is False]
        if lacking:
            remedy = REMEDIES.get(subject, "apply the Roles and bindings of deploy/ again")
            yield Check(
                name=name,
                state=CheckState.FAILED,
                text=f"lacking: {untrusted.joined(lacking, MAX_NAMED)}",
                remedy=remedy,
            )
        elif any(right.is_allowed is None for right in own):
            yield Check(name=name, state=CheckState.UNKNOWN, text="you may not ask for them")
        else:
            yield Check(name=name, state=CheckState.OK, text=f"{len(own)} of {len(own)} granted")


def _check_policies(facts: Facts) -> Check:
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


def _check_storage(facts: Facts) -> Check:
    name, classes = "storage class", facts.storage_classes
    if classes is None:
        return Check(name=name, state=CheckState.UNKNOWN, text="you may not read StorageClasses")
    default = next(
        (storage_class.metadata.name for storage_class in classes if storage_class.is_default), None
    )
    if default is not None:
        return Check(name=name, state=CheckState.OK, text=f"{default} is the default")
    names = ", ".join(sorted(storage_class.metadata.name for storage_class in classes))
    text = f"none of {names} is the default" if names else "there is none"
    remedy = (
        "mark one as the default, name one in an overlay of your own, or use "
        "deploy/overlays/local, which needs no volume"
    )
    return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
