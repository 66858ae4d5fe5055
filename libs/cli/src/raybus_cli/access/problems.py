"""What a refusal means for the user of the command line: one line with what to do about it."""

from typing import Final, cast

from common import errors

NOT_SERVED: Final = "the server could not find the requested resource"
"""The API server's words for a kind that it does not know."""
INSTALL_CRDS: Final = (
    "the cluster does not serve ray.io/v1: install the CRDs with 'kubectl apply --server-side -k deploy/crds'"
)

_REMEDIES: Final = (
    (errors.NotFound, "see what there is with 'raybus list -A'"),
    (errors.Forbidden, "ask for that right, and see what you may do with 'kubectl auth can-i --list'"),
    (errors.Conflict, "somebody else changed it just now, try again"),
    (errors.Unavailable, "is it up, and is the --context right?"),
    (errors.Throttled, "try again in a moment"),
)


def first(problem: BaseException) -> BaseException:
    """Return the first problem of a group."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem


def line(problem: BaseException) -> str:
    """Return a problem as one line."""
    text = " ".join(str(problem).split())
    if is_not_served(problem):
        return INSTALL_CRDS
    if isinstance(problem, errors.Forbidden) and "Unauthorized" in text:
        return "the cluster does not know you (Unauthorized): log in again, or choose another --context"
    remedy = next((words for kind, words in _REMEDIES if isinstance(problem, kind)), None)
    return text if remedy is None or "exceeded quota" in text else f"{text}; {remedy}"


def is_not_served(problem: BaseException) -> bool:
    """Tell whether the API server does not know a kind at all."""
    return isinstance(problem, errors.NotFound) and (NOT_SERVED in str(problem) or "page not found" in str(problem))


def exit_code(problem: BaseException) -> int:
    """Return 2 for a command that makes no sense as written, 1 for what could not be done."""
    return 2 if isinstance(problem, errors.InvalidSpec) else 1
