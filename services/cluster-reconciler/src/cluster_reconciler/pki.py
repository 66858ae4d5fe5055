"""What is done about the certificates of a cluster with mutual TLS, and whether pods may use them.

cert-manager issues them. The objects that ask it to are made once; the two leaf certificates follow the addresses of the pods, gathered for
some seconds, because each change is a new certificate. No pod is made before both are issued as they are asked for now. An object of
one of these names that is not this cluster's is never used: another key would sign. Behaviour: spec raycluster §11.15, §20; acceptance case 120.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import Adopt, ClusterPlan, Continue, step
from cluster_reconciler.observed import Observed, Pki
from cluster_reconciler.reasons import Failure, ReplicaFailure
from cluster_reconciler.resources import owner, tls
from cluster_reconciler.resources.tls import Part
from common import labels, pod_json
from common.api.opaque import Body
from common.kube.resources import CERTIFICATE, ISSUER, SECRET
from common.runtime.actions import Action, Create, EmitEvent, IfExists, Parallel, Refuse, Replace
from common.validation import ray_cluster as cluster_rules

KINDS: Final = (ISSUER, CERTIFICATE)
GATHERED_FOR: Final = timedelta(seconds=5)
"""How long addresses are gathered after a change of a leaf certificate; pods check theirs as often."""
SHORTEST_WAIT: Final = timedelta(seconds=1)
LONGEST_WAIT: Final = timedelta(seconds=30)
"""Between reads while certificates are awaited; the longest is KubeRay's."""
RIGHTS: Final = "grant the rights of deploy/components/mtls, or remove tlsOptions"
LONGEST_WAIT_FOR_KINDS: Final = timedelta(seconds=300)
WARNED_BEFORE: Final = timedelta(hours=24)


def require(observed: Observed) -> Continue | ClusterPlan:
    """Make nothing of a cluster with TLS where the API server does not serve cert-manager's kinds (§4.4)."""
    if observed.pki is None or observed.pki.is_served:
        return Continue()
    problem = f"{cluster_rules.NO_CERT_MANAGER}; {cluster_rules.CERT_MANAGER_REMEDY}"
    event = events.INVALID_SPEC.about(observed.cluster, what="spec", problem=problem)
    refusal = Failure(ReplicaFailure.CERT_MANAGER_NOT_FOUND, problem)
    return ClusterPlan(actions=step(EmitEvent(event=event)), refusal=refusal, note=problem)


def maintain(observed: Observed) -> Continue:
    """Make what is absent and change what is out of date, in the order of the chain, up to the first problem; report the state."""
    pki = observed.pki
    if pki is None:
        return Continue()
    problem = missing(observed)
    steps = [
        Parallel(actions=(each,), chain="mtls")
        for part in tls.chain(observed.cluster, observed.config, *observed.addresses)
        for each in (*_about(part, observed, pki), *_owner_of_secret(part, observed, pki))
    ]
    reports = step(*_reports(observed, pki, problem), is_side=True)
    return Continue(actions=(*steps, *reports), note=f"mTLS: {problem}" if problem else "")


def _about(part: Part, observed: Observed, pki: Pki) -> Iterator[Action]:
    """Yield what is done about one object."""
    cluster, have, problem, kind = (
        observed.cluster,
        pki.objects.get(part.place),
        pki.fault,
        part.resource.kind,
    )
    if not problem and have is not None and not owner.controls(cluster, have):
        problem = f"{kind} {part.name} already exists and is not owned by this RayCluster; delete or rename the {kind}"
    failing = events.MTLS_FAILED.failing(cluster, step=part.step, problem=problem)
    may_change = pki.changed_at is None or observed.now >= pki.changed_at + GATHERED_FOR
    if problem:
        yield Refuse(event=events.MTLS_FAILED.about(cluster, step=part.step, problem=problem))
    elif have is None:
        yield Create(
            resource=part.resource, body=part.body, events=failing, if_exists=IfExists.NEED_OWN
        )
    elif (
        may_change
        and _is_outdated(part, pki)
        and (body := owner.updated(part.body, have, "labels")) is not None
    ):
        addresses = " ".join(part.body["spec"]["ipAddresses"])
        report = events.UPDATED_CERTIFICATE.about(cluster, step=part.step, addresses=addresses)
        yield Replace(
            resource=part.resource,
            body=body,
            events=msgspec.structs.replace(failing, success=report),
        )


def _is_outdated(part: Part, pki: Pki) -> bool:
    """Return whether a leaf certificate as read names other pods or hosts than it should; the order does not count."""
    have = pki.objects.get(part.place)
    if have is None or not part.is_leaf:
        return False
    spec, names = pod_json.body(have, "spec"), ("dnsNames", "ipAddresses")
    has_other = any(
        sorted(pod_json.strings(spec, each)) != sorted(part.body["spec"][each]) for each in names
    )
    return (
        has_other or pod_json.mapping(have["metadata"], "labels") != part.body["metadata"]["labels"]
    )


def _owner_of_secret(part: Part, observed: Observed, pki: Pki) -> Iterator[Action]:
    """Yield what lets the Secret that cert-manager wrote go with its Certificate; once a read."""
    have, secret = pki.objects.get(part.place), pki.objects.get((SECRET, part.secret))
    if (
        not pki.is_fresh
        or have is None
        or secret is None
        or not owner.controls(observed.cluster, have)
    ):
        return
    meta, uid = secret["metadata"], have["metadata"]["uid"]
    known = pod_json.bodies(meta, "ownerReferences")
    is_signed_for_it = (
        pod_json.mapping(meta, "annotations").get(labels.CERTIFICATE_NAME) == part.name
    )
    if not is_signed_for_it or any(each.get("uid") == uid for each in known):
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
            "ownerReferences": [*known, reference],
        }
    }
    failing = events.MTLS_FAILED.failing(observed.cluster, step=part.step, problem="")
    yield Adopt(resource=SECRET, name=part.secret, patch=patch, events=failing)


def missing(observed: Observed) -> str:
    """Return why pods may not use the certificates yet; empty when they may, or when the cluster has no TLS."""
    if observed.pki is None:
        return ""
    leaves = [part for part in tls.chain(observed.cluster, observed.config) if part.is_leaf]
    for part in leaves:
        have = observed.pki.objects.get(part.place)
        if have is None or not owner.controls(observed.cluster, have):
            return f"mTLS secrets not ready: certificate {part.name} not found"
        if not is_ready(have):
            generation = have["metadata"].get("generation", 0)
            return f"mTLS secrets not ready: certificate {part.name} is not ready at current generation {generation}"
    for part in leaves:
        secret = observed.pki.objects.get((SECRET, part.secret))
        if secret is None:
            return f"mTLS secrets not ready: secret {part.secret} not found"
        if absent := [key for key in tls.KEYS if key not in pod_json.mapping(secret, "data")]:
            return f"mTLS secrets not ready: secret {part.secret} missing required key {absent[0]}"
    return ""


def is_ready(certificate: Body) -> bool:
    """Return whether a Certificate was issued for its spec as it is now."""
    found = pod_json.bodies(pod_json.body(certificate, "status"), "conditions")
    ready = next((each for each in found if each.get("type") == "Ready"), None)
    generation = certificate["metadata"].get("generation", 0)
    return (
        ready is not None
        and ready.get("status") == "True"
        and ready.get("observedGeneration", 0) == generation
    )


def is_complete(observed: Observed) -> bool:
    """Return whether all is as it should be, so that it need not be read again soon."""
    pki = observed.pki
    if pki is None or not pki.is_served or missing(observed):
        return False
    return not any(
        _is_outdated(part, pki) or any(_about(part, observed, pki))
        for part in tls.chain(observed.cluster, observed.config, *observed.addresses)
    )


def requeue_at(observed: Observed) -> datetime | None:
    """Return when to reconcile again because something is awaited: soon at first, then less and less often."""
    if observed.pki is None or is_complete(observed):
        return None
    since = observed.pki.awaited_since or observed.now
    longest = LONGEST_WAIT if observed.pki.is_served else LONGEST_WAIT_FOR_KINDS
    return observed.now + min(max((observed.now - since) / 2, SHORTEST_WAIT), longest)


def _reports(observed: Observed, pki: Pki, problem: str) -> Iterator[Action]:
    cluster = observed.cluster
    if problem and not pki.fault:
        yield EmitEvent(event=events.CERTIFICATES_AWAITED.about(cluster))
    elif not problem and pki.was_awaited:
        yield EmitEvent(event=events.PKI_READY.about(cluster))
    if problem or not pki.is_fresh:
        return
    for name, certificate in (
        (name, body) for (kind, name), body in pki.objects.items() if kind is CERTIFICATE
    ):
        try:
            left = (
                msgspec.convert(pod_json.body(certificate, "status").get("notAfter"), datetime)
                - observed.now
            )
        except (msgspec.ValidationError, TypeError):  # not known
            continue
        if left < WARNED_BEFORE:
            hours = f"{left / timedelta(hours=1):.1f}"
            yield EmitEvent(event=events.EXPIRES_SOON.about(cluster, name=name, hours=hours))
