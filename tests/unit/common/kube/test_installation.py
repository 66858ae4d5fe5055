"""The identity of a cluster, by the namespaces that may be read."""

from common import errors
from common.kube import resources
from common.kube.installation import Installation
from support.fakes.kube import FakeKube, Request
from support.tables import cases


def refusing(*names: str) -> FakeKube:
    """Return a server with two namespaces, some of which may not be read."""
    kube = FakeKube()
    for name in ("kube-system", "raybus"):
        kube.put(
            resources.NAMESPACE,
            {"metadata": {"name": name, "namespace": "", "uid": f"uid-of-{name}"}},
        )

    def refuse(request: Request) -> errors.RaybusError | None:
        return errors.Forbidden(f"{request.name} is not for you") if request.name in names else None

    kube.faults.append(refuse)
    return kube


@cases(
    ("forbidden", "identity"),
    {
        "kube-system lasts as long as the cluster": ((), "uid-of-kube-system/raybus"),
        "else our own namespace identifies the cluster": (("kube-system",), "uid-of-raybus/raybus"),
        "else the cluster is unknown": (("kube-system", "raybus"), ""),
    },
)
async def test_an_installation_is_known_by_what_it_may_read(
    forbidden: tuple[str, ...], identity: str
) -> None:
    assert await Installation(refusing(*forbidden), "raybus").read_identity() == identity
