"""Errors of the NATS server, as nats-py reports them."""

from nats import errors as nats_errors

from common.bus.server_errors import ServerError, classify, parse_refused_subject
from support.tables import cases

PUBLISH = 'nats: Permissions Violation for Publish to "ray.state.1"'
SUBSCRIBE = 'nats: Permissions Violation for Subscription to "ray.state.>"'


@cases(
    ("problem", "kind"),
    {
        "refused while connecting": (
            nats_errors.Error("nats: 'Authorization Violation'"),
            ServerError.UNKNOWN_KEY,
        ),
        "key removed later": (nats_errors.AuthorizationError(), ServerError.UNKNOWN_KEY),
        "publish": (nats_errors.Error(PUBLISH), ServerError.NOT_PERMITTED),
        "subscribe": (nats_errors.Error(SUBSCRIBE), ServerError.NOT_PERMITTED),
        "stale": (nats_errors.StaleConnectionError(), ServerError.OTHER),
        "reset": (ConnectionResetError(), ServerError.OTHER),
    },
)
def test_errors_of_the_server_are_told_apart(problem: Exception, kind: ServerError) -> None:
    assert classify(problem) is kind


def test_only_a_refused_publish_names_a_subject() -> None:
    assert parse_refused_subject(nats_errors.Error(PUBLISH)) == "ray.state.1"
    assert parse_refused_subject(nats_errors.Error(SUBSCRIBE)) is None
