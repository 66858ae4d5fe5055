"""Records of earlier specs, and the patch that restores one."""

import copy

import msgspec
import pytest

from common import errors, labels
from raybus_cli.control import cli, history
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading.snapshot import Snapshot
from support.builders import snapshots
from support.builders.ray_service import a_serve_config
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    a_cluster,
    a_config,
    a_goal,
    a_revision,
    at_rest,
    in_steps,
)
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of
from support.upgrade_events import RECEIPT


def _after_an_upgrade() -> Snapshot:
    """Return a service that went from blue to green with another Serve config; blue still exists."""
    old, new = a_config(), a_config(snapshots.NEW_IMAGE)
    serve = a_serve_config(message="v2")
    service = snapshots.a_ready_service(config=new, serve=serve)
    service["status"]["activeServiceStatus"] = snapshots.a_side(GREEN)
    was = a_cluster(BLUE, copy.deepcopy(old))
    was["spec"]["workerGroupSpecs"][0] |= {
        "replicas": 7,
        "scaleStrategy": {"workersToDelete": ["a"]},
    }
    return at_rest(
        service=service,
        clusters=[was, a_cluster(GREEN, new, age=300)],
        revisions=[
            a_revision(BLUE, a_serve_config()),
            a_revision(GREEN, a_serve_config()),
            a_revision(GREEN, serve, 2),
        ],
    )


def _long_after() -> Snapshot:
    """Return a service that went from one image to another, with a third in between that never
    served; the old cluster was deleted.
    """
    new, serve = a_config(snapshots.NEW_IMAGE), a_serve_config(message="v2")
    service = snapshots.a_ready_service(config=new, serve=serve)
    service["status"]["activeServiceStatus"] = snapshots.a_side(GREEN)
    return at_rest(
        service=service,
        clusters=[a_cluster(GREEN, new, age=300)],
        revisions=[a_revision(GREEN, serve)],
        goals=[
            a_goal(a_config(), a_serve_config(), 1),
            a_goal(a_config("rayproject/ray:nightly"), a_serve_config(), 2, replaces=1),
            a_goal(new, serve, 3, replaces=1),
        ],
    )


def _numbered(snapshot: Snapshot) -> list[tuple[int, str, bool]]:
    return [
        (each.number, each.cluster, each.is_current) for each in history.build(snapshot, now=NOW)
    ]


def test_history_shows_every_spec_that_is_kept(golden: Golden) -> None:
    entries = history.build(_long_after(), now=NOW)
    assert [(each.number, each.role, each.is_current) for each in entries] == [
        (1, "gone", False),
        (2, "gone", False),
        (3, "active", True),
    ]
    golden.check("cli/history.txt", text_of(cli.format_table(entries), width=160))
    golden.check("cli/history-wide.txt", text_of(cli.format_table(entries, wide=True), width=200))
    for width in (60, 80, 160):
        golden.check(
            f"cli/history-wide-{width}.txt",
            text_of(cli.format_table(entries, wide=True), width=width),
        )


def _receipt(outcome: str, *, old: str = BLUE, new: str = GREEN) -> dict[str, str]:
    text = (
        f'{{"from":"{old}","to":"{new}","outcome":"{outcome}","started":"2026-01-01T12:00:00Z",'
        '"finished":"2026-01-01T12:03:00Z","seconds":{"preparing":60,"shifting":60,"draining":60},'
        '"peakSurgePercent":20,"lowestCapacityPercent":100,"requestsCut":0}'
    )
    return {"raybus.io/upgrade-receipt": text}


def _after_a_failure(outcome: str, *, old: str = BLUE) -> Snapshot:
    """Return a service that is back at its first spec; the cluster of the second was deleted."""
    service = snapshots.a_ready_service(annotations=_receipt(outcome, old=old))
    text = service["spec"]["serveConfigV2"]
    goals = [
        a_goal(a_config(), text, 1),
        a_goal(a_config(snapshots.NEW_IMAGE), text, 2, replaces=1),
    ]
    return at_rest(service=service, goals=goals)


def _aborted(reason: str = "GateFailed") -> Snapshot:
    """Return a service with an aborted spec that no receipt contains yet."""
    aborted = snapshots.a_condition(
        "UpgradeAborted", reason=reason, message="Generation 2 is aborted"
    )
    new = a_config(snapshots.NEW_IMAGE)
    service = snapshots.a_service(
        snapshots.READY, aborted, active=snapshots.a_side(BLUE), config=new
    )
    text = service["spec"]["serveConfigV2"]
    goals = [a_goal(a_config(), text, 1), a_goal(new, text, 2, replaces=1)]
    return at_rest(service=service, clusters=[a_cluster(BLUE, a_config())], goals=goals)


@cases(
    ("snapshot", "outcomes"),
    {
        "one spec, which serves": (at_rest(), ["Promoted"]),
        "an upgrade": (in_steps(), ["Promoted", "InProgress"]),
        "without a receipt of the one between": (_long_after(), ["Promoted", "", "Promoted"]),
        "rolled back": (_after_a_failure("RolledBack"), ["Promoted", "RolledBack"]),
        "aborted": (_after_a_failure("Aborted"), ["Promoted", "Aborted"]),
        "the receipt of another cluster": (
            _after_a_failure("Aborted", old="other"),
            ["Promoted", ""],
        ),
        "aborted just now": (_aborted(), ["Promoted", "Aborted"]),
        "corrected while the spec before it goes": (
            _aborted("EarlierGateFailed"),
            ["Promoted", ""],
        ),
    },
)
def test_the_outcome_of_each_spec_is_what_the_records_have(
    snapshot: Snapshot, outcomes: list[str]
) -> None:
    assert [each.outcome for each in history.build(snapshot, now=NOW)] == outcomes


def test_images_of_all_groups_are_kept() -> None:
    (entry,) = history.build(at_rest(service=snapshots.a_ready_service()), now=NOW)
    assert entry.images == {"head": snapshots.OLD_IMAGE, "gpu": snapshots.OLD_IMAGE}
    assert entry.created is not None


def test_without_a_record_the_clusters_are_read() -> None:
    assert _numbered(_after_an_upgrade()) == [(1, BLUE, False), (2, GREEN, False), (3, GREEN, True)]


def test_a_record_and_its_cluster_are_one_entry() -> None:
    snapshot = in_steps()
    text = snapshot.service.spec.serve_config_v2
    known = in_steps(
        goals=[
            a_goal(a_config(), text, 4),
            a_goal(a_config(snapshots.NEW_IMAGE), text, 5, replaces=4),
        ]
    )
    assert _numbered(known) == [(4, BLUE, False), (5, GREEN, True)]


def test_what_changed_in_place_comes_after_what_is_recorded() -> None:
    config, serve = a_config(), a_serve_config(message="v2")
    revisions = [a_revision(BLUE, a_serve_config()), a_revision(BLUE, serve, 2)]
    goals = [a_goal(config, a_serve_config(), 1)]
    snapshot = at_rest(
        service=snapshots.a_ready_service(config=config, serve=serve),
        revisions=revisions,
        goals=goals,
    )
    assert _numbered(snapshot) == [(1, BLUE, False), (2, BLUE, True)]
    assert history.choose(history.build(snapshot, now=NOW), None, "demo").number == 1


def test_undo_of_a_serve_config_that_went_to_and_fro_goes_on_to_and_fro() -> None:
    config, serve = a_config(), a_serve_config(message="v2")
    revisions = [a_revision(BLUE, serve, 2), a_revision(BLUE, a_serve_config(), 3)]
    goals = [
        a_goal(a_config(snapshots.NEW_IMAGE), serve, 1),
        a_goal(config, a_serve_config(), 2, replaces=1),
    ]
    snapshot = at_rest(
        service=snapshots.a_ready_service(config=config), revisions=revisions, goals=goals
    )
    assert _numbered(snapshot) == [(1, "", False), (2, BLUE, True), (3, BLUE, False)]
    assert history.choose(history.build(snapshot, now=NOW), None, "demo").number == 3


def test_undo_goes_to_what_served_before_and_past_what_never_did() -> None:
    snapshot = _long_after()
    entry = history.choose(history.build(snapshot, now=NOW), None, "demo")
    change = history.change(snapshot.service, entry)
    fields = "spec.rayClusterConfig and spec.serveConfigV2"
    text = history.describe_change(change, entry, PlanOutcome.NEW_CLUSTER, is_done=True)
    assert text == f"{fields} are restored from revision 1: a new cluster starts"
    text = history.describe_change(change, entry, PlanOutcome.NEW_CLUSTER, is_done=False)
    assert (
        text
        == f"dry run: nothing is changed; {fields} would be restored from revision 1: a new cluster starts"
    )
    assert [each["value"] for each in change.operations[1:]] == [a_config(), a_serve_config()]


def test_undo_of_a_spec_that_was_never_reconciled_goes_to_the_active_cluster() -> None:
    unseen = snapshots.a_ready_service(config=a_config("rayproject/ray:nightly"))
    text = unseen["spec"]["serveConfigV2"]
    goals = [
        a_goal(a_config(snapshots.NEW_IMAGE), text, 1),
        a_goal(a_config(), text, 2, replaces=1),
    ]
    snapshot = at_rest(service=unseen, clusters=[a_cluster(BLUE, a_config())], goals=goals)
    assert history.choose(history.build(snapshot, now=NOW), None, "demo").number == 2


def test_undo_rolls_back_to_the_newest_other_spec() -> None:
    snapshot = _after_an_upgrade()
    entry = history.choose(history.build(snapshot, now=NOW), None, "demo")
    change = history.change(snapshot.service, entry)
    assert [each["path"] for each in change.operations] == ["/metadata/uid", "/spec/serveConfigV2"]
    assert change.operations[1]["value"] == a_serve_config()


def test_undo_to_a_revision_restores_the_cluster_without_what_the_autoscaler_wrote() -> None:
    snapshot = _after_an_upgrade()
    entry = history.choose(history.build(snapshot, now=NOW), 1, "demo")
    change = history.change(snapshot.service, entry)
    config = next(
        each["value"] for each in change.operations if each["path"] == "/spec/rayClusterConfig"
    )
    group = config["workerGroupSpecs"][0]
    assert config["headGroupSpec"] == a_config()["headGroupSpec"]
    assert (group["replicas"], group["scaleStrategy"]) == (4, {})


def test_undo_in_mid_upgrade_rolls_back_to_the_active_cluster() -> None:
    snapshot = in_steps()
    entry = history.choose(history.build(snapshot, now=NOW), None, "demo")
    assert entry.cluster == BLUE
    change = history.change(snapshot.service, entry)
    assert history.describe_change(change, entry, PlanOutcome.ROLLED_BACK, is_done=True) == (
        "spec.rayClusterConfig is restored from revision 1: the service rolls back to RayCluster demo-blue"
    )


def test_undo_of_an_aborted_spec_restores_the_spec_that_serves() -> None:
    service = snapshots.a_ready_service(config=a_config(snapshots.NEW_IMAGE))
    text = service["spec"]["serveConfigV2"]
    goals = [
        a_goal(a_config("rayproject/ray:nightly"), text, 2),
        a_goal(a_config(), text, 3, replaces=2),
        a_goal(a_config(snapshots.NEW_IMAGE), text, 4, replaces=3),
    ]
    snapshot = at_rest(service=service, clusters=[a_cluster(BLUE, a_config())], goals=goals)
    entry = history.choose(history.build(snapshot, now=NOW), None, "demo")
    change = history.change(snapshot.service, entry)
    assert (entry.number, change.fields) == (3, ("spec.rayClusterConfig",))


@pytest.mark.parametrize(
    ("number", "message"),
    [
        pytest.param(None, "no earlier spec", id="nothing is kept"),
        pytest.param(9, "there is no revision 9", id="unknown"),
    ],
)
def test_undo_reports_when_it_cannot(number: int | None, message: str) -> None:
    with pytest.raises(errors.Rejected, match=message):
        history.choose(history.build(at_rest(), now=NOW), number, "demo")


def test_undo_to_what_is_asked_for_already_is_refused() -> None:
    snapshot = at_rest()
    with pytest.raises(errors.Rejected, match="asks for revision 1 already"):
        history.change(
            snapshot.service, history.choose(history.build(snapshot, now=NOW), 1, "demo")
        )


def test_the_receipt_of_the_last_upgrade_is_a_sentence() -> None:
    annotations = _receipt("Promoted", old="a", new="b")
    (ended,) = history.describe_upgrades(
        at_rest(service=snapshots.a_ready_service(annotations=annotations))
    )
    assert ended.startswith("Upgrade from a to b: Promoted after 180 s")
    assert history.describe_upgrades(at_rest()) == []
    assert history.describe_upgrades(in_steps(annotations=annotations)) == [
        ended,
        f"Upgrade from {BLUE} to {GREEN}: in progress",
    ]


def test_a_receipt_has_a_line_for_each_step_with_gates() -> None:
    annotations = {labels.UPGRADE_RECEIPT: msgspec.json.encode(RECEIPT).decode()}
    _, *steps = history.describe_upgrades(
        at_rest(service=snapshots.a_ready_service(annotations=annotations))
    )
    assert steps == [
        "  5 % since 12:01:10: Pass: errorRate: 1 of 412 requests failed (0.243%), at most 1% allowed"
    ]
