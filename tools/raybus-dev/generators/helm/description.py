"""Makes the description of the Helm chart: `Chart.yaml`, and `README.md` with all values.

The comments of `values.yaml` are written as helm-docs reads them: the text of a value begins with
`# --` and ends above its key.
"""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import yaml

from common.version import VERSION
from raybus_cli.doctor import prerequisites
from support.manifests import Document

SUMMARY: Final = (
    "Ray clusters and Ray Serve applications on Kubernetes, upgraded without a failed request."
)
OLDEST_KUBERNETES: Final = ".".join(map(str, prerequisites.MIN_SERVER_VERSION))
KEYWORDS: Final = ("ray", "ray-serve", "kuberay", "gateway-api", "nats")
CRD_TEXTS: Final = {
    "RayCluster": "A Ray cluster: a head and groups of workers.",
    "RayService": "Ray Serve applications on a RayCluster, upgraded without a failed request.",
    "RayJob": "A Ray job, on a RayCluster of its own or an existing one.",
    "RayCronJob": "RayJobs on a schedule.",
    "UpgradePolicy": "Steps and gates of the upgrades of RayServices.",
}
"""The text that Artifact Hub shows for each kind of the CRDs."""

_TEXT: Final = re.compile(r"^ *# ?")
_BEGIN: Final = "# --"


class ChartValue(msgspec.Struct, frozen=True):
    """A value of the chart. `default` is its default as JSON."""

    path: str
    kind: str
    default: str
    text: str


def list_values(source: str) -> list[ChartValue]:
    """Return the values that the text of a `values.yaml` describes, in its order.

    A map with a text of its own is one value. Each entry of a map without a text is a value. Raises
    `ValueError` for any other value without a text.
    """
    root = cast("yaml.MappingNode", yaml.compose(source, Loader=yaml.SafeLoader))
    return list(_walk(root, yaml.safe_load(source), source.splitlines(), ""))


def _walk(
    node: yaml.MappingNode, values: Mapping[str, Any], lines: Sequence[str], prefix: str
) -> Iterator[ChartValue]:
    for key, inner in node.value:
        name: str = key.value
        path, value = f"{prefix}{name}", values[name]
        text = _read_text(lines, key.start_mark.line)
        if not text and isinstance(inner, yaml.MappingNode) and inner.value:
            yield from _walk(inner, value, lines, f"{path}.")
        elif not text:
            raise ValueError(f"{path}: write a comment that begins with `{_BEGIN}` above it")
        else:
            yield ChartValue(path, _name_type(value), json.dumps(value), text)


def _read_text(lines: Sequence[str], line: int) -> str:
    """Return the text in the comment that ends above a line; empty if there is none."""
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
        if lines[first].lstrip().startswith(_BEGIN):
            comment = " ".join(_TEXT.sub("", text).strip() for text in lines[first:line])
            return comment.removeprefix("--").strip()
    return ""


def _name_type(value: object) -> str:
    names = {bool: "bool", int: "int", str: "string", list: "list", dict: "object"}
    return names[type(cast("Any", value))]


def render_readme(source: str) -> str:
    """Return `README.md` of the chart from the text of its `values.yaml`."""
    table = "".join(
        f"| `{value.path}` | {value.kind} | `{_escape(value.default)}` | {_escape(value.text)} |\n"
        for value in list_values(source)
    )
    return README.format(
        version=VERSION, summary=SUMMARY, kubernetes=OLDEST_KUBERNETES, table=table
    )


def _escape(text: str) -> str:
    return text.replace("|", r"\|")


def describe_schema(schema: Mapping[str, Any], source: str) -> str:
    """Return the JSON schema of the values, with each value's text in `values.yaml` as description.

    `source` is the content of `values.yaml`. Raises `KeyError` for a value that the schema lacks.
    """
    described = copy.deepcopy(dict(schema))
    for value in list_values(source):
        inner: dict[str, Any] = described
        for name in value.path.split("."):
            inner = inner["properties"][name]
        others = {name: part for name, part in inner.items() if name != "description"}
        inner.clear()
        inner.update({"description": value.text, **others})
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


README: Final = """<!-- Made from values.yaml: make golden -->
# raybus

{summary}
Version {version}, for Kubernetes {kubernetes} or newer.

```console
$ helm install raybus raybus-{version}.tgz --namespace raybus --create-namespace \\
    --set image.registry=registry.example.com/raybus
$ helm test raybus --namespace raybus
```

No registry serves the images under a fixed name, so `image.registry` has no default. A release
comes with the images, and with values that name the registry and the digests.

Helm creates the CRDs at the first installation, and never changes or deletes them. Before an
upgrade, check and replace them with the command line of the new version. The check stops the line
if an object would lose a field:

```console
$ raybus crds check && raybus crds print | kubectl apply --server-side --force-conflicts -f - && \\
    helm upgrade raybus raybus-{version}.tgz --namespace raybus --reset-then-reuse-values
```

`--reset-then-reuse-values` keeps your values and takes new defaults, which `--reuse-values` leaves
out. `docs/installation.md` of the repository describes OpenShift, single namespaces, clusters
without a network, and removal.

## Values

| value | type | default | description |
|---|---|---|---|
{table}"""


def render_chart(definitions: Iterable[Document]) -> str:
    """Return the text of `Chart.yaml` for a chart that contains these CRDs."""
    chart = {
        "apiVersion": "v2",
        "name": "raybus",
        "description": SUMMARY,
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": f">={OLDEST_KUBERNETES}.0-0",
        "keywords": list(KEYWORDS),
        "annotations": {
            "artifacthub.io/category": "ai-machine-learning",
            "artifacthub.io/license": "Apache-2.0",
            "artifacthub.io/operator": "true",
            "artifacthub.io/operatorCapabilities": "Seamless Upgrades",
            "artifacthub.io/crds": _Text(
                dump([_describe(definition) for definition in definitions])
            ),
        },
    }
    return "# Made from the CRDs and common/version.py: make golden\n" + dump(chart)


def _describe(definition: Document) -> Document:
    names = definition["spec"]["names"]
    stored = next(version for version in definition["spec"]["versions"] if version["storage"])
    return {
        "kind": names["kind"],
        "version": stored["name"],
        "name": definition["metadata"]["name"],
        "displayName": names["kind"],
        "description": CRD_TEXTS[names["kind"]],
    }


class _Text(str):
    """A text of several lines, which YAML shows as a block."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes lists inside of maps with indentation, and `_Text` as a block."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(_: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(_Text, _represent_text)


def dump(data: object) -> str:
    """Return data as YAML; the order of keys is kept."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
