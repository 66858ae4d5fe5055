"""The report as people see it; the picture is the one on the documentation's page."""

import msgspec

from raybus_cli.migrating import findings, report
from raybus_cli.migrating.findings import MigrationFinding, Subject
from raybus_cli.migrating.report import CODES, MigrationReport, MigrationVerdict, OperatorSummary
from raybus_cli.migrating.switches import Setting
from support.golden import Golden
from support.terminal import text_of

KUBERAY = OperatorSummary(
    namespace="ray-system", name="kuberay-operator", version="v1.5.1", replicas=1, ready=1
)


def a_report(*objects: Subject, found: tuple[MigrationFinding, ...] = ()) -> MigrationReport:
    return MigrationReport(
        verdict=report.decide_verdict(list(found), list(objects)),
        kuberay=[KUBERAY],
        raybus=[],
        settings=[
            Setting(kuberay="--enable-leader-election", value="true", here="needs nothing here"),
            Setting(
                kuberay="--feature-gates",
                value="RayServiceIncrementalUpgrade=true",
                here="RAYBUS_FEATURE_GATES",
            ),
            Setting(kuberay="ENABLE_PROBES_INJECTION", value="false", here="the same"),
        ],
        environment={
            "ENABLE_PROBES_INJECTION": "false",
            "RAYBUS_FEATURE_GATES": "RayServiceIncrementalUpgrade=true",
        },
        findings=list(found),
        objects=list(objects),
    )


def test_a_report_with_everything_in_it(golden: Golden) -> None:
    hook = findings.report_change(
        "ValidatingWebhookConfiguration kuberay sends changes to KubeRay's operator: without it they are refused",
        "'kubectl delete validatingwebhookconfiguration kuberay' before KubeRay stops",
    )
    job = findings.report_change(
        "the gate RayCronJob is off in raybus, so no run would start",
        "set RAYBUS_FEATURE_GATES=RayCronJob=true on job-reconciler",
    )
    found = a_report(
        findings.build_subject(
            "RayService",
            "shop",
            "demo",
            [findings.add_note("an upgrade is on from demo-a to demo-b")],
        ),
        findings.build_subject("RayCronJob", "shop", "nightly", [job]),
        findings.build_subject("RayCluster", "shop", "demo-a", []),
        found=(hook,),
    )
    assert found.verdict is MigrationVerdict.NOT_READY
    golden.check("cli/migrate-check.txt", text_of(report.draw(found, wide=False)))
    assert "an upgrade is on" not in text_of(report.draw(found, wide=False))
    assert "an upgrade is on" in text_of(report.draw(found, wide=True))


def test_the_worst_finding_decides() -> None:
    note, unread = findings.add_note("n"), findings.report_unread("u")
    change, missing = findings.report_change("c"), findings.report_unsupported("m")
    table = [
        ((), MigrationVerdict.READY),
        ((note,), MigrationVerdict.READY),
        ((note, unread), MigrationVerdict.UNREAD),
        ((unread, missing), MigrationVerdict.NOT_READY),
        ((change, unread), MigrationVerdict.NOT_READY),
    ]
    for some, expected in table:
        assert (
            report.decide_verdict([], [findings.build_subject("RayCluster", "n", "c", some)])
            is expected
        )
        assert report.decide_verdict(list(some), []) is expected
    assert (
        CODES[MigrationVerdict.READY],
        CODES[MigrationVerdict.NOT_READY],
        CODES[MigrationVerdict.UNREAD],
    ) == (0, 1, 2)


def test_where_kuberay_is_gone_there_is_nothing_to_take_over() -> None:
    alone = msgspec.structs.replace(
        a_report(), kuberay=[], raybus=[KUBERAY], settings=[], environment={}
    )
    assert (
        text_of(report.draw(alone, wide=False))
        .strip()
        .endswith("done: KubeRay is not installed, raybus is")
    )
