"""Certificates, tokens and kubeconfigs: readable by their owner alone, and accepted by TLS clients."""

import ssl
from pathlib import Path

import pytest

from localcluster import kubeconfig
from localcluster.errors import MisuseError
from localcluster.kubeconfig import Access


def test_keys_and_tokens_are_private_and_new_each_time(tmp_path: Path) -> None:
    first = kubeconfig.create(tmp_path / "a", addresses=["127.0.0.1"], node="node-0")
    second = kubeconfig.create(tmp_path / "b", addresses=["127.0.0.1"], node="node-0")
    assert [path.name for path in first.folder.iterdir() if path.stat().st_mode & 0o077] == []
    assert first.tokens["admin"] != second.tokens["admin"]
    ssl.create_default_context(cafile=str(first.ca)).load_cert_chain(
        first.certificate("apiserver"), first.key("apiserver")
    )


def test_the_token_file_names_groups_as_the_api_server_reads_them(tmp_path: Path) -> None:
    made = kubeconfig.create(tmp_path, addresses=[], node="node-0")
    lines = made.token_file.read_text().splitlines()
    assert f'{made.tokens["admin"]},admin,admin,"system:masters"' in lines
    assert f'{made.tokens["node"]},system:node:node-0,system:node:node-0,"system:nodes"' in lines


def test_a_kubeconfig_gives_back_what_it_was_made_of(tmp_path: Path) -> None:
    access = Access(server="https://127.0.0.1:6443", ca=b"-----PEM-----", token="secret")
    path = kubeconfig.write(tmp_path / "config", "mine", access)
    assert kubeconfig.read_access(path) == access
    assert kubeconfig.check_readable(path) == access.server
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(None, "cannot read", id="no file"),
        pytest.param("{", "not YAML", id="no YAML"),
        pytest.param("a: 1", "no usable current-context", id="no kubeconfig"),
        pytest.param("[]", "no usable current-context", id="a list"),
    ],
)
def test_an_unusable_kubeconfig_is_named(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(MisuseError, match=complaint):
        kubeconfig.check_readable(path)
