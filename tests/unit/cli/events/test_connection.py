"""The address of NATS and our identity there, from options and folders; an error is named with its remedy."""

from pathlib import Path

import pytest

from common import errors
from raybus_cli.events import connection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "subscriber.seed").write_text("SU…")
    (tmp_path / "ca.crt").write_text("PEM")
    return tmp_path


def test_a_folder_as_raybus_up_writes_it(folder: Path) -> None:
    found = connection.build_settings("tls://nats:4222", folder)
    assert (found.service, found.nats_url) == ("subscriber", "tls://nats:4222")
    assert (found.nats_seed_file, found.nats_ca_file) == (
        folder / "users" / "subscriber.seed",
        folder / "ca.crt",
    )


def test_a_folder_as_a_secret_is_mounted(tmp_path: Path) -> None:
    for file in ("seed", "ca.crt"):
        (tmp_path / file).write_text("")
    assert (
        connection.build_settings("tls://nats:4222", tmp_path).nats_seed_file == tmp_path / "seed"
    )


def test_a_server_without_users_needs_no_credentials() -> None:
    found = connection.build_settings("nats://127.0.0.1:4222", None)
    assert (found.nats_seed_file, found.nats_ca_file) == (None, None)


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:4333", "127.0.0.1:4333"),
        ("0.0.0.0:4222", "localhost:4222"),
        ("[::]:4222", "localhost:4222"),
        ("[::1]:4222", "[::1]:4222"),
    ],
)
def test_the_address_is_read_from_the_configuration_beside_the_credentials(
    folder: Path, listen: str, url: str
) -> None:
    (folder / "nats-server.conf").write_text(f'server_name: "nats"\nlisten: "{listen}"\n')
    assert connection.build_settings(None, folder).nats_url == f"tls://{url}"


@pytest.mark.parametrize(
    "url", ["localhost:4222", "http://nats:4222", "tls://", "tls://nats:port", "tls://nats:99999"]
)
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match=r"^--nats .*: expected nats://HOST:PORT or tls://HOST:PORT$"
    ):
        connection.build_settings(url, None)


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(
        errors.InvalidSpec, match=r"--nats is needed: .* does not name the address of NATS"
    ):
        connection.build_settings(None, folder)
    (folder / "ca.crt").unlink()
    with pytest.raises(errors.InvalidSpec, match=r"there is no ca\.crt"):
        connection.build_settings("tls://nats:4222", folder)
    (folder / "users" / "subscriber.seed").unlink()
    with pytest.raises(errors.InvalidSpec, match=r"neither users/subscriber\.seed nor seed"):
        connection.build_settings("tls://nats:4222", folder)
    with pytest.raises(errors.InvalidSpec, match="no such folder"):
        connection.build_settings("tls://nats:4222", folder / "missing")
