"""What is built, and from which modules."""

from localcluster import binaries, build_sources, settings

_UPSTREAM = """
require (
\tk8s.io/api v0.0.0
\tk8s.io/apiserver v0.0.0
\tk8s.io/klog/v2 v2.130.1
\tk8s.io/utils v0.0.0-20250604170112-4c0f3b243397
)
"""


def test_staging_modules_are_replaced_by_their_released_versions_and_no_others() -> None:
    text = build_sources.module_file("kubernetes", _UPSTREAM)
    staged = settings.KUBERNETES.replace("1.", "v0.", 1)
    replaced = [line for line in text.splitlines() if line.startswith("replace")]
    assert replaced == [
        f"replace k8s.io/api => k8s.io/api {staged}",
        f"replace k8s.io/apiserver => k8s.io/apiserver {staged}",
    ]


def test_other_modules_are_taken_as_they_are() -> None:
    assert "replace" not in build_sources.module_file("etcd", _UPSTREAM)
    assert f"require go.etcd.io/etcd/server/v3 v{settings.ETCD}" in build_sources.module_file(
        "etcd", _UPSTREAM
    )


def test_everything_that_a_cluster_asks_for_can_be_made() -> None:
    wanted = {
        *binaries.NODE,
        *binaries.GATEWAY,
        *binaries.SIMULATED_NODES,
        *binaries.TOOLS,
        *binaries.THIRD_PARTY,
    }
    assert wanted == {*build_sources.PROGRAMS, *build_sources.MANIFESTS}


def test_every_group_has_a_module_and_a_main_package() -> None:
    for program in build_sources.PROGRAMS.values():
        assert program.group in build_sources.MODULES
        assert bool(program.main) != (program.group in build_sources.INSTALLED)


def test_the_programs_of_a_module_are_built_together_in_the_order_of_their_names() -> None:
    wanted = ["etcd", "kube-apiserver", "coredns", "kubelet", "envoy-gateway", "kubectl"]
    groups = [[program.name for program in group] for group in build_sources.by_group(wanted)]
    assert groups == [
        ["etcd"],
        ["kube-apiserver", "kubelet", "kubectl"],
        ["coredns"],
        ["envoy-gateway"],
    ]


def test_a_module_with_a_main_package_of_its_own_has_one_program() -> None:
    for group in build_sources.by_group([*build_sources.PROGRAMS]):
        assert len(group) == 1 or group[0].group not in build_sources.INSTALLED
