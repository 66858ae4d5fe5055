"""Copying into a root file system: links are followed as a process inside would, never to a place
outside.
"""

from pathlib import Path

import pytest

from localcluster.images import inside


@pytest.mark.parametrize(
    ("path", "inside_path"),
    [
        pytest.param("/bin/tool", "usr/bin/tool", id="a relative link"),
        pytest.param("/abs/tool", "usr/bin/tool", id="an absolute link means the root"),
        pytest.param("/../../etc/x", "etc/x", id="no way up"),
        pytest.param("/up/x", "x", id="a link that climbs too far"),
    ],
)
def test_links_are_followed_inside_the_root(tmp_path: Path, path: str, inside_path: str) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "abs").symlink_to("/usr/bin")
    (root / "up").symlink_to("../../..")

    assert inside.resolve(root, path) == root / inside_path


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(inside.StepError, match="too many symbolic links"):
        inside.resolve(tmp_path, "/a")


def test_a_user_is_known_by_number_or_by_the_images_own_names(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(
        "root:x:0:0::/:/bin/sh\nray:x:1000:100::/home/ray:/bin/bash\n"
    )

    assert [inside.find_identity(tmp_path, user) for user in ("", "5:6", "ray")] == [
        (0, 0),
        (5, 6),
        (1000, 100),
    ]
    with pytest.raises(inside.StepError, match="USER nobody: not in the image"):
        inside.find_identity(tmp_path, "nobody")
