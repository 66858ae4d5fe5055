"""The files of the Helm chart that need no Helm: its CRDs, its description and its page."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from common.version import VERSION
from generators.helm import description
from support.golden import Golden
from support.manifests import DEPLOY, ROOT
from support.tables import cases

CHART = DEPLOY / "helm" / "raybus"
VALUES = (CHART / "values.yaml").read_text()
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
CRDS = {path.name: path for path in (DEPLOY / "crds").glob("*_*.yaml")}


def test_the_chart_has_every_crd() -> None:
    assert {path.name for path in (CHART / "crds").iterdir()} == CRDS.keys()


@pytest.mark.parametrize("name", CRDS)
def test_a_crd_of_the_chart_is_the_file_of_the_repository(name: str) -> None:
    """A regular file with the path of a CRD as its text is no CRD: Helm refuses the chart."""
    assert (CHART / "crds" / name).resolve() == CRDS[name].resolve()


def test_the_licence_of_the_wheel_is_that_of_the_repository() -> None:
    assert (DEPLOY / "wheel" / "LICENSE").resolve() == (ROOT / "LICENSE").resolve()


@pytest.fixture
def made(golden: Golden) -> Golden:
    """Return the files of the chart as golden files."""
    return Golden(root=CHART, update=golden.update)


def test_its_page_has_the_values_of_the_file_with_their_texts(made: Golden) -> None:
    made.check("README.md", description.render_readme(VALUES))


def test_its_description_names_the_version_and_the_crds(made: Golden) -> None:
    definitions = [yaml.load(CRDS[name].read_text(), yaml.CSafeLoader) for name in sorted(CRDS)]
    made.check("Chart.yaml", description.render_chart(definitions))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    listed = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    assert [each["name"] for each in listed] == [each["metadata"]["name"] for each in definitions]


def test_its_schema_has_the_texts_of_the_values(made: Golden) -> None:
    made.check("values.schema.json", description.describe_schema(SCHEMA, VALUES))


def test_a_value_without_a_text_is_named() -> None:
    with pytest.raises(ValueError, match=r"^nats\.size: write a comment"):
        description.list_values("nats:\n  # -- Port.\n  port: 1\n  # Not a text.\n  size: 1\n")


def test_a_text_ends_where_another_comment_begins() -> None:
    source = "# -- Of the first.\na: 1\n# About what follows.\n\n# -- One\n# and two.\nb: {c: 1}\n"
    assert [(value.path, value.text) for value in description.list_values(source)] == [
        ("a", "Of the first."),
        ("b", "One and two."),
    ]


def test_the_schema_accepts_the_defaults_and_names_each_value() -> None:
    jsonschema.validate(yaml.safe_load(VALUES), SCHEMA)
    for value in description.list_values(VALUES):
        schema: dict[str, Any] = SCHEMA
        for name in value.path.split("."):
            assert name in schema["properties"], value.path
            schema = schema["properties"][name]


@cases(
    ("path", "wrong", "message"),
    {
        "an unknown value": ("replica", 1, "replica"),
        "an unknown value in a group": ("nats.size", "1Gi", "size"),
        "a text in place of a number": ("replicas.watcher", "two", "two"),
        "a registry with a scheme": ("image.registry", "https://reg.test/x", "https://reg.test/x"),
        "a negative number": ("replicas.watcher", -1, "minimum"),
        "two servers": ("nats.servers", 2, "[1, 3, 5]"),
        "a digest of another kind": ("image.digests", {"watcher": "latest"}, "sha256"),
        "a digest of an unknown image": ("image.digests", {"ray": "sha256:" + "0" * 64}, "ray"),
        "a namespace with capitals": ("watchNamespace", ["Team"], "Team"),
        "an unknown log level": ("logLevel", "TRACE", "TRACE"),
        "an address without a scheme": ("nats.url", "nats.example.com", "nats.example.com"),
        "an unknown scheduler": ("batchScheduler.name", "slurm", "slurm"),
        "a gate target without a scheme": ("gateTargets", ["example.com"], "example.com"),
        "a text in place of a list": ("tolerations", "all", "all"),
        "a size without a number": ("nats.storage.size", "large", "large"),
        "a store without a number": ("nats.maxStore", "much", "much"),
        "a list in place of a map": ("resources", [], "object"),
        "a map in place of a list": ("configuration.defaultContainerEnvs", {"A": "b"}, "array"),
        "an unknown field of resources": ("nats.resources", {"limit": {}}, "limit"),
        "a label that is a number": ("configuration.defaultPodLabels", {"a": 1}, "string"),
        "a secret without a name": ("imagePullSecrets", [{"nam": "key"}], "name"),
    },
)
def test_the_schema_refuses(path: str, wrong: object, message: str) -> None:
    values: Any = {}
    inner = values
    *groups, last = path.split(".")
    for group in groups:
        inner = inner.setdefault(group, {})
    inner[last] = wrong
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate(values, SCHEMA)
    assert message in str(refused.value)
