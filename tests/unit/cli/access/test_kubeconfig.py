"""The kubeconfig, context and namespace that apply by kubectl's rules, and the meaning of refusals."""

from pathlib import Path

import pytest
import yaml

from common import errors
from raybus_cli import kubeconfig, session
from raybus_cli.kubeconfig import KubeAccess
from support.tables import cases


def _write(path: Path, current: str | None, **namespaces: str | None) -> Path:
    contexts = [
        {
            "name": name,
            "context": {"cluster": name, "user": name, **({"namespace": space} if space else {})},
        }
        for name, space in namespaces.items()
    ]
    path.write_text(
        yaml.safe_dump({"contexts": contexts, **({"current-context": current} if current else {})})
    )
    return path


def _find(env: dict[str, str], *given: str | None, mounted: Path = Path("/nowhere")) -> KubeAccess:
    return kubeconfig.find(*(*given, None, None, None)[:3], env=env, mounted=mounted)


def test_the_contexts_namespace_holds_unless_another_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "a", "one", one="team", two=None)
    env = {"KUBECONFIG": str(path), "HOME": str(tmp_path)}
    assert _find(env) == KubeAccess(kubeconfig=path, context="one", namespace="team")
    assert _find(env, None, "two").namespace == "default"
    assert _find(env, None, None, "mine").namespace == "mine"


def test_of_several_files_the_first_value_wins(tmp_path: Path) -> None:
    first, second = (
        _write(tmp_path / "a", None, one="a"),
        _write(tmp_path / "b", "one", one="b", two="c"),
    )
    env = {"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}", "HOME": str(tmp_path)}
    assert _find(env) == KubeAccess(
        kubeconfig=Path(f"{first}:{second}"), context="one", namespace="a"
    )
    assert _find(env, None, "two").namespace == "c"


def test_the_option_goes_before_the_environment(tmp_path: Path) -> None:
    named, other = _write(tmp_path / "a", "one", one="a"), _write(tmp_path / "b", "one", one="b")
    assert _find({"KUBECONFIG": str(other), "HOME": str(tmp_path)}, str(named)).namespace == "a"


def test_the_option_is_one_path_whatever_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    named, other = _write(folder / "config", "one", one="a"), _write(tmp_path / "c", "two", two="c")
    env = {"KUBECONFIG": str(other), "HOME": str(tmp_path)}
    found = _find(env, str(named))
    assert found == KubeAccess(kubeconfig=named, context="one", namespace="a")
    assert kubeconfig.list_contexts(str(named), env=env) == ["one"]
    assert found.build_kubectl_options() == (["--context", "one", "--kubeconfig", str(named)], {})


def test_kubectl_gets_several_files_as_its_environment_has_them(tmp_path: Path) -> None:
    joined = f"{_write(tmp_path / 'a', 'one', one='a')}:{_write(tmp_path / 'b', None, two='b')}"
    found = _find({"KUBECONFIG": joined, "HOME": str(tmp_path)})
    assert found.build_kubectl_options() == (["--context", "one"], {"KUBECONFIG": joined})


def test_without_any_the_local_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(kubeconfig.NoCluster, match="raybus cluster kubeconfig"):
        _find({"HOME": str(tmp_path)})
    with pytest.raises(kubeconfig.NoCluster) as raised:
        _find({"HOME": str(tmp_path)}, str(tmp_path / "none"))
    assert "raybus cluster" not in str(raised.value)


def test_without_any_a_pods_own_account_is_used(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("namespace", "inner\n")):
        (tmp_path / name).write_text(text)
    assert _find({"HOME": str(tmp_path)}, mounted=tmp_path) == KubeAccess(
        kubeconfig=None, namespace="inner"
    )


@cases(
    ("text", "expected"),
    {
        "not YAML": ("contexts: [", "it is not YAML"),
        "no context": ("contexts: []", "the kubeconfig has no current-context"),
        "a context that is gone": (
            "current-context: gone",
            "context 'gone' is not in the kubeconfig",
        ),
    },
)
def test_a_kubeconfig_of_no_use_is_one_line(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(kubeconfig.NoCluster, match=expected) as raised:
        _find({"KUBECONFIG": str(tmp_path / "a"), "HOME": str(tmp_path)})
    assert session.find_exit_code(raised.value) == 1


@cases(
    ("problem", "expected"),
    {
        "no CRDs": (
            errors.NotFound("the server could not find the requested resource"),
            "install the CRDs",
        ),
        "no such object": (errors.NotFound('"x" not found'), "raybus list -A"),
        "no such namespace": (
            errors.NotFound('namespaces "new" not found'),
            "kubectl create namespace new",
        ),
        "no right": (errors.Forbidden("cannot list"), "kubectl auth can-i"),
        "a stranger": (errors.Forbidden("Unauthorized"), "log in again"),
        "over quota": (errors.Forbidden("exceeded quota: gpus"), "exceeded quota: gpus"),
        "no answer": (errors.Unavailable("no answer"), "is the --context right?"),
        "somebody was first": (errors.Conflict("old"), "try again"),
        "lines become one": (errors.Rejected("a\nb"), "a b"),
    },
)
def test_a_refusal_names_the_remedy(problem: errors.RaybusError, expected: str) -> None:
    text = session.format_error(problem)
    assert expected in text
    assert "\n" not in text
