"""The table of the version matrix: lines are replaced one by one, and stay in the order of rows."""

import pytest

from localcluster import binaries, build_sources, settings
from raybus_cli.doctor import prerequisites
from version_matrix import rows, table
from version_matrix.rows import RowOutcome, VersionRow

PAGE = f"before\n{table.BEGIN}\n{table.END}\nafter\n"
UPGRADED = RowOutcome(
    row="kubernetes-1.31",
    seconds={"RayCluster": 1.4, "RayJob": 5.0, "RayService": 6.6, "upgrade": 20.2},
    weights=[0, 50, 100],
)
REFUSED = RowOutcome(row="nats-2.10", refusal="NATS 2.10.27 is older than 2.11.0")


def test_a_line_has_the_figures_of_its_row() -> None:
    line = table.update(PAGE, [UPGRADED]).splitlines()[5]
    (version,) = (row.kubernetes for row in rows.find([UPGRADED.row]))
    assert line == (
        f"| `kubernetes-1.31` | Kubernetes {version} | 1.4 | 5.0 | 6.6 | 20.2 | 0 % → 50 % → 100 % |"
    )


def test_a_refused_version_has_its_sentence() -> None:
    line = table.update(PAGE, [REFUSED]).splitlines()[5]
    assert line.endswith("|  |  |  |  | refused: NATS 2.10.27 is older than 2.11.0 |")


def test_one_row_leaves_the_others_and_the_page_as_they_are() -> None:
    later = table.update(table.update(PAGE, [REFUSED]), [UPGRADED])
    assert [line.split("`")[1] for line in later.splitlines() if "`" in line] == [
        "kubernetes-1.31",
        "nats-2.10",
    ]
    assert table.update(later, [UPGRADED]) == later
    assert later.startswith("before\n")
    assert later.endswith("\nafter\n")


def test_a_page_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="no lines"):
        table.update("a page", [UPGRADED])


def test_a_row_names_what_it_runs_in_another_version() -> None:
    assert VersionRow(name="pinned").difference == ""
    assert (
        VersionRow(name="both", nats="2.11.0", ray="2.9.3").difference == "NATS 2.11.0, Ray 2.9.3"
    )


def test_rows_are_found_by_name() -> None:
    assert rows.find([]) == list(rows.ROWS)
    assert [row.kubernetes for row in rows.find(["kubernetes-1.31"])] == ["1.31.0"]


def test_the_oldest_kubernetes_that_raybus_supports_is_a_row() -> None:
    oldest = min(tuple(map(int, row.kubernetes.split("."))) for row in rows.ROWS)
    assert oldest[:2] == prerequisites.MIN_SERVER_VERSION


@pytest.mark.parametrize("row", rows.ROWS, ids=lambda row: row.name)
def test_the_programs_of_each_row_can_be_built(row: VersionRow) -> None:
    names = list(binaries.map_kubernetes_programs(row.kubernetes).values())
    names += [f"nats-server-{row.nats}"] if row.nats else []
    assert [name for name in names if name not in build_sources.PROGRAMS] == []


@pytest.mark.parametrize("version", settings.TESTED_KUBERNETES)
def test_another_kubernetes_has_its_own_libraries_and_reports_its_version(version: str) -> None:
    upstream = "module k8s.io/kubernetes\n\nrequire (\n\tk8s.io/api v0.0.0\n)\n"
    text = build_sources.format_module_file(f"kubernetes-{version}", upstream)
    staged = f"v0.{version.removeprefix('1.')}"
    assert f"require k8s.io/kubernetes v{version}" in text
    assert f"replace k8s.io/api => k8s.io/api {staged}" in text
    flags = build_sources.build_linker_flags(f"kubernetes-{version}")
    assert f"gitVersion=v{version}" in flags
