"""The report as people see it; the picture is the one on the documentation's page."""

import msgspec

from raybus_cli.migrating import findings, report
from raybus_cli.migrating.findings import Finding, Subject
from raybus_cli.migrating.report import CODES, OperatorSummary, Report, Verdict
from raybus_cli.migrating.switches import Setting
from support.golden import Golden
from support.terminal import text_of

KUBERAY = OperatorSummary(
    namespace="ray-system", name="kuberay-operator", version="v1.5.1", replicas=1, ready=1
)


def a_report(*objects: Subject, found: tuple[Finding, ...] = ()) -> Report:
    return Report(
        verdict=report.verdict(list(found), list(objects)),
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
    hook = findings.change(
        "ValidatingWebhookConfiguration kuberay sends changes to KubeRay's operator: without it they are refused",
        "'kubectl delete validatingwebhookconfiguration kuberay' before KubeRay stops",
    )
    job = findings.unsupported(
        "no controller would run it (Running)",
        "raybus runs no jobs: let them end before KubeRay stops, or run them elsewhere",
    )
    found = a_report(
        findings.subject(
            "RayService", "shop", "demo", [findings.note("an upgrade is on from demo-a to demo-b")]
        ),
        findings.subject("RayJob", "shop", "nightly", [job]),
        findings.subject("RayCluster", "shop", "demo-a", []),
        found=(hook,),
    )
    assert found.verdict is Verdict.NOT_READY
    golden.check("cli/migrate-check.txt", text_of(report.draw(found, wide=False)))
    assert "an upgrade is on" not in text_of(report.draw(found, wide=False))
    assert "an upgrade is on" in text_of(report.draw(found, wide=True))


def test_the_worst_finding_decides() -> None:
    note, unread = findings.note("n"), findings.unread("u")
    change, missing = findings.change("c"), findings.unsupported("m")
    table = [
        ((), Verdict.READY),
        ((note,), Verdict.READY),
        ((note, unread), Verdict.UNREAD),
        ((unread, missing), Verdict.NOT_READY),
        ((change, unread), Verdict.NOT_READY),
    ]
    for some, expected in table:
        assert report.verdict([], [findings.subject("RayCluster", "n", "c", some)]) is expected
        assert report.verdict(list(some), []) is expected
    assert (CODES[Verdict.READY], CODES[Verdict.NOT_READY], CODES[Verdict.UNREAD]) == (0, 1, 2)


def test_where_kuberay_is_gone_there_is_nothing_to_take_over() -> None:
    alone = msgspec.structs.replace(
        a_report(), kuberay=[], raybus=[KUBERAY], settings=[], environment={}
    )
    assert (
        text_of(report.draw(alone, wide=False))
        .strip()
        .endswith("done: KubeRay is not installed, raybus is")
    )
