"""The parts of the machine that a build uses."""

from pathlib import Path

from localcluster.images import sandbox
from support.tables import cases


@cases(
    ("sources", "mirror"),
    {
        "no apt here": ("", "http://deb.debian.org/debian"),
        "deb822": ("Types: deb\nURIs: http://mirror.test/debian\n", "http://mirror.test/debian"),
        "one line": (
            "deb [trusted=yes] https://m.test/debian/ bookworm main",
            "https://m.test/debian",
        ),
        "no Debian mirror": (
            "URIs: http://archive.ubuntu.test/ubuntu\n",
            "http://deb.debian.org/debian",
        ),
    },
)
def test_the_mirror_is_the_mirror_of_apt(sources: str, mirror: str) -> None:
    assert sandbox.find_mirror(sources) == mirror


def test_security_updates_come_from_the_same_mirror() -> None:
    assert "deb http://m.test/debian-security bookworm-security main" in sandbox.format_sources(
        "http://m.test/debian"
    )


def test_a_snapshot_has_its_security_updates_at_the_same_time() -> None:
    sources = sandbox.format_sources(
        sandbox.choose_mirror(
            {"RAYBUS_DEBIAN_MIRROR": "http://s.test/archive/debian/20261101T000000Z/"}
        )
    )

    assert "deb http://s.test/archive/debian/20261101T000000Z bookworm main" in sources
    assert (
        "deb http://s.test/archive/debian-security/20261101T000000Z bookworm-security main"
        in sources
    )


def test_only_what_leads_to_packages_is_passed_on() -> None:
    given = {
        "PIP_INDEX_URL": "u",
        "https_proxy": "p",
        "PIP_TARGET": "/x",
        "HOME": "/root",
        "UV_CACHE_DIR": "/c",
    }

    passed = sandbox.select_environment(given, has_bundle=True)

    assert (passed["PIP_INDEX_URL"], passed["https_proxy"]) == ("u", "p")
    assert passed["SSL_CERT_FILE"] == passed["PIP_CERT"] == "/run/build/ca.crt"
    assert not passed.keys() & {"PIP_TARGET", "HOME", "UV_CACHE_DIR"}


def test_folders_of_wheels_that_do_not_exist_are_left_out(tmp_path: Path) -> None:
    assert sandbox.find_links(f"{tmp_path} /does/not/exist https://w.test/") == (
        str(tmp_path),
        "https://w.test/",
    )
