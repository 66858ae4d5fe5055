"""Turns an error into one line for the user, with the remedy."""

import re
from typing import Final

from common import errors
from common.kube.resources import Resource

NOT_SERVED: Final = "the server could not find the requested resource"
"""The API server's message for a kind that it does not know."""
MISSING_NAMESPACE: Final = re.compile('namespaces? "([a-z0-9-]+)" not found')
INSTALL_CRDS: Final = (
    "the cluster does not serve ray.io/v1: install the CRDs with 'kubectl apply --server-side -k deploy/crds'"
)


class NoSuchObject(errors.NotFound):
    """There is no object of this kind and name in this namespace."""

    def __init__(self, resource: Resource, namespace: str, name: str) -> None:
        super().__init__(f'{resource.plural}.{resource.group} "{name}" not found in namespace "{namespace}"')
        self.resource = resource
        self.name = name


class Denied(errors.Forbidden):
    """A user of the page does not have a right, which the text names."""


class InAnotherNamespace(errors.NotFound):
    """The object is not in this namespace and one of its name is in another, which the text names."""


_REMEDIES: Final = (
    (InAnotherNamespace, ""),
    (errors.NotFound, "see what there is with 'raybus list -A'"),
    (errors.Forbidden, "ask for that right, and see what you may do with 'kubectl auth can-i --list'"),
    (errors.Conflict, "another client changed it just now, try again"),
    (errors.Unavailable, "is it up, and is the --context right?"),
    (errors.Throttled, "try again in a moment"),
)


def first(problem: BaseException) -> BaseException:
    """Return the first problem of a group."""
    return next(errors.leaves(problem))


def line(problem: BaseException) -> str:
    """Return a problem as one line."""
    text = " ".join(str(problem).split())
    if is_not_served(problem):
        return INSTALL_CRDS
    if isinstance(problem, errors.Forbidden) and "Unauthorized" in text:
        return "the cluster does not know your user (Unauthorized): log in again, or choose another --context"
    if isinstance(problem, errors.NotFound) and (missing := MISSING_NAMESPACE.search(text)) is not None:
        return f"{text}; create it: kubectl create namespace {missing[1]}"
    remedy = next((advice for kind, advice in _REMEDIES if isinstance(problem, kind)), None)
    return text if not remedy or "exceeded quota" in text else f"{text}; {remedy}"


def is_not_served(problem: BaseException) -> bool:
    """Return whether the API server does not serve a kind at all."""
    return isinstance(problem, errors.NotFound) and (NOT_SERVED in str(problem) or "page not found" in str(problem))


def exit_code(problem: BaseException) -> int:
    """Return 2 for an invalid command, 1 for one that could not be done."""
    return 2 if isinstance(problem, errors.InvalidSpec) else 1
