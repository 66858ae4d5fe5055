"""Maintain the certificates of a cluster with mutual TLS, and decide whether pods may use them.

cert-manager issues the certificates. Issuers and Certificates are created once. The two leaf
certificates (of the head and of all workers) contain the IP addresses of the pods. Address changes
are collected for some seconds, because each change issues a new certificate. No pod is created
before both leaf certificates are issued for their present spec. An existing object with one of
these names but another owner is never used, because its key is not the cluster's. Spec raycluster
§11.15, §20; acceptance case 120.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import Adopt, ClusterPlan, Continue, make_step
from cluster_reconciler.observed import Observed, PkiState
from cluster_reconciler.reasons import Failure, ReplicaFailure
from cluster_reconciler.resources import owner, tls
from cluster_reconciler.resources.tls import ChainPart
from common import labels, pod_json
from common.api.opaque import Body
from common.kube.resources import CERTIFICATE, ISSUER, SECRET
from common.runtime.actions import Action, Create, EmitEvent, IfExists, Parallel, Refuse, Replace
from common.validation import ray_cluster as cluster_rules

KINDS: Final = (ISSUER, CERTIFICATE)
MIN_CHANGE_INTERVAL: Final = timedelta(seconds=5)
"""Minimum time between two changes of a leaf certificate, so that one change covers many new pods.

The certificate contains the pods' addresses. Pods check it at the same interval.
"""
MIN_WAIT: Final = timedelta(seconds=1)
MAX_WAIT: Final = timedelta(seconds=30)
"""Maximum time between two reads of certificates for which pods wait, as in KubeRay.

The minimum time is `MIN_WAIT`.
"""
RIGHTS: Final = "grant the rights of deploy/components/mtls, or remove tlsOptions"
MAX_WAIT_FOR_KINDS: Final = timedelta(seconds=300)
WARNED_BEFORE: Final = timedelta(hours=24)


def require(observed: Observed) -> Continue | ClusterPlan:
    """Refuse a cluster with TLS if the API server does not serve cert-manager's kinds (§4.4)."""
    if observed.pki is None or observed.pki.is_served:
        return Continue()
    problem = f"{cluster_rules.NO_CERT_MANAGER}; {cluster_rules.CERT_MANAGER_REMEDY}"
    event = events.INVALID_SPEC.about(observed.cluster, what="spec", problem=problem)
    refusal = Failure(ReplicaFailure.CERT_MANAGER_NOT_FOUND, problem)
    return ClusterPlan(actions=make_step(EmitEvent(event=event)), refusal=refusal, note=problem)


def maintain(observed: Observed) -> Continue:
    """Return the actions that create or update the certificates, from the CA to the leaves.

    Events report the progress. After the first problem, the remaining certificates are not updated.
    """
    pki = observed.pki
    if pki is None:
        return Continue()
    problem = explain_missing(observed)
    steps = [
        Parallel(actions=(action,), chain="mtls")
        for part in tls.build_chain(observed.cluster, observed.config, *observed.addresses)
        for action in (
            *_update_part(part, observed, pki),
            *_update_secret_owner(part, observed, pki),
        )
    ]
    reports = make_step(*_report(observed, pki, problem), is_side=True)
    return Continue(actions=(*steps, *reports), note=f"mTLS: {problem}" if problem else "")


def _update_part(part: ChainPart, observed: Observed, pki: PkiState) -> Iterator[Action]:
    """Yield the action that creates or updates one Issuer or Certificate, or reports a problem."""
    cluster, have, problem, kind = (
        observed.cluster,
        pki.objects.get(part.address),
        pki.problem,
        part.resource.kind,
    )
    if not problem and have is not None and not owner.controls(cluster, have):
        problem = (
            f"{kind} {part.name} already exists and is not owned by this RayCluster; delete or "
            f"rename the {kind}"
        )
    failing = events.MTLS_FAILED.failing(cluster, step=part.step, problem=problem)
    may_change = pki.changed_at is None or observed.now >= pki.changed_at + MIN_CHANGE_INTERVAL
    if problem:
        yield Refuse(event=events.MTLS_FAILED.about(cluster, step=part.step, problem=problem))
    elif have is None:
        yield Create(
            resource=part.resource, body=part.body, events=failing, if_exists=IfExists.NEED_OWN
        )
    elif (
        may_change
        and _is_outdated(part, pki)
        and (body := owner.update_child(part.body, have, "labels")) is not None
    ):
        addresses = " ".join(part.body["spec"]["ipAddresses"])
        report = events.UPDATED_CERTIFICATE.about(cluster, step=part.step, addresses=addresses)
        yield Replace(
            resource=part.resource,
            body=body,
            events=msgspec.structs.replace(failing, success=report),
        )


def _is_outdated(part: ChainPart, pki: PkiState) -> bool:
    """Return whether a leaf certificate differs from its desired names, addresses or labels."""
    have = pki.objects.get(part.address)
    if have is None or not part.is_leaf:
        return False
    spec, names = pod_json.body(have, "spec"), ("dnsNames", "ipAddresses")
    has_other = any(
        sorted(pod_json.strings(spec, field)) != sorted(part.body["spec"][field]) for field in names
    )
    return (
        has_other or pod_json.mapping(have["metadata"], "labels") != part.body["metadata"]["labels"]
    )


def _update_secret_owner(part: ChainPart, observed: Observed, pki: PkiState) -> Iterator[Action]:
    """Yield the action that makes a Certificate own the Secret that cert-manager wrote for it.

    The Secret is then deleted with the Certificate. The Secret is changed at most once for each
    read of the certificates.
    """
    have, secret = pki.objects.get(part.address), pki.objects.get((SECRET, part.secret))
    if (
        not pki.is_fresh
        or have is None
        or secret is None
        or not owner.controls(observed.cluster, have)
    ):
        return
    meta, uid = secret["metadata"], have["metadata"]["uid"]
    references = pod_json.bodies(meta, "ownerReferences")
    is_signed_for_it = (
        pod_json.mapping(meta, "annotations").get(labels.CERTIFICATE_NAME) == part.name
    )
    if not is_signed_for_it or any(existing.get("uid") == uid for existing in references):
        return
    reference = {
        "apiVersion": CERTIFICATE.api_version,
        "kind": CERTIFICATE.kind,
        "name": part.name,
        "uid": uid,
    }
    patch: Body = {
        "metadata": {
            "resourceVersion": meta["resourceVersion"],
            "ownerReferences": [*references, reference],
        }
    }
    failing = events.MTLS_FAILED.failing(observed.cluster, step=part.step, problem="")
    yield Adopt(resource=SECRET, name=part.secret, patch=patch, events=failing)


def explain_missing(observed: Observed) -> str:
    """Return why pods cannot use the certificates yet; empty if they can, or if TLS is off."""
    if observed.pki is None:
        return ""
    leaves = [part for part in tls.build_chain(observed.cluster, observed.config) if part.is_leaf]
    for part in leaves:
        have = observed.pki.objects.get(part.address)
        if have is None or not owner.controls(observed.cluster, have):
            return f"mTLS secrets not ready: certificate {part.name} not found"
        if not is_ready(have):
            generation = have["metadata"].get("generation", 0)
            return (
                f"mTLS secrets not ready: certificate {part.name} is not ready at current "
                f"generation {generation}"
            )
    for part in leaves:
        secret = observed.pki.objects.get((SECRET, part.secret))
        if secret is None:
            return f"mTLS secrets not ready: secret {part.secret} not found"
        if absent := [key for key in tls.KEYS if key not in pod_json.mapping(secret, "data")]:
            return f"mTLS secrets not ready: secret {part.secret} missing required key {absent[0]}"
    return ""


def is_ready(certificate: Body) -> bool:
    """Return whether a Certificate is issued for its current spec."""
    certificate_conditions = pod_json.bodies(pod_json.body(certificate, "status"), "conditions")
    ready = next(
        (condition for condition in certificate_conditions if condition.get("type") == "Ready"),
        None,
    )
    generation = certificate["metadata"].get("generation", 0)
    return (
        ready is not None
        and ready.get("status") == "True"
        and ready.get("observedGeneration", 0) == generation
    )


def is_complete(observed: Observed) -> bool:
    """Return whether the certificates are issued and need no change.

    While this is False, the certificates are read more often.
    """
    pki = observed.pki
    if pki is None or not pki.is_served or explain_missing(observed):
        return False
    return not any(
        _is_outdated(part, pki) or any(_update_part(part, observed, pki))
        for part in tls.build_chain(observed.cluster, observed.config, *observed.addresses)
    )


def get_requeue_time(observed: Observed) -> datetime | None:
    """Return when to read incomplete certificates again; None if they are complete or TLS is off.

    The longer they have been incomplete, the longer the interval.
    """
    if observed.pki is None or is_complete(observed):
        return None
    since = observed.pki.awaited_since or observed.now
    longest = MAX_WAIT if observed.pki.is_served else MAX_WAIT_FOR_KINDS
    return observed.now + min(max((observed.now - since) / 2, MIN_WAIT), longest)


def _report(observed: Observed, pki: PkiState, problem: str) -> Iterator[Action]:
    cluster = observed.cluster
    if problem and not pki.problem:
        yield EmitEvent(event=events.CERTIFICATES_AWAITED.about(cluster))
    elif not problem and pki.was_awaited:
        yield EmitEvent(event=events.PKI_READY.about(cluster))
    if problem or not pki.is_fresh:
        return
    for name, certificate in (
        (name, body) for (kind, name), body in pki.objects.items() if kind is CERTIFICATE
    ):
        try:
            remaining = (
                msgspec.convert(pod_json.body(certificate, "status").get("notAfter"), datetime)
                - observed.now
            )
        except (msgspec.ValidationError, TypeError):  # The expiry is unknown.
            continue
        if remaining < WARNED_BEFORE:
            hours = f"{remaining / timedelta(hours=1):.1f}"
            yield EmitEvent(event=events.EXPIRES_SOON.about(cluster, name=name, hours=hours))
