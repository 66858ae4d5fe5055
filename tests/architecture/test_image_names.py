"""Our images have no name of a foreign registry, where somebody else could publish."""

import subprocess

from support.manifests import ROOT

FOREIGN = "docker.io/" + "raybus"
HISTORY = ("CHANGELOG.md", "docs/adr")


def test_no_file_names_an_image_of_ours_on_docker_hub() -> None:
    paths = [f":!{path}" for path in HISTORY]
    found = subprocess.run(
        ["git", "grep", "--untracked", "-lI", FOREIGN, "--", ".", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.splitlines() == [], "write registry.invalid/raybus/…"
    assert found.returncode == 1, found.stderr
