"""The parts of Grafana's dashboard schema that raybus's dashboards use.

The schema version is 39, for Grafana 10.4 and newer.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

Json = dict[str, Any]

WIDTH: Final = 24
"""Number of columns in Grafana's grid."""
HEIGHT: Final = 8
SCHEMA: Final = 39
SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}


class Query(msgspec.Struct, frozen=True):
    """A Prometheus query of a panel, and the legend of its lines."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A panel of a dashboard."""

    title: str
    text: str
    """Description that Grafana shows when the user points at the panel's info icon."""
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    most: float | None = None
    """Maximum of the vertical axis; None lets Grafana choose."""


class PanelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


class GrafanaVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable at the top of a dashboard, with a query for its values."""

    name: str
    label: str
    query: str


class GrafanaDashboard(msgspec.Struct, frozen=True, kw_only=True):
    """A Grafana dashboard: rows of panels, and variables."""

    uid: str
    title: str
    text: str
    rows: tuple[PanelRow, ...]
    variables: tuple[GrafanaVariable, ...] = ()


def render(page: GrafanaDashboard) -> str:
    """Return the dashboard as JSON for Grafana's import or provisioning."""
    model: Json = {
        "uid": page.uid,
        "title": page.title,
        "description": page.text,
        "tags": ["raybus"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "links": [],
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {
            "list": [_datasource(), *(_variable(variable) for variable in page.variables)]
        },
        "panels": list(_panels(page.rows)),
    }
    return msgspec.json.format(msgspec.json.encode(model), indent=2).decode() + "\n"


def _panels(rows: Sequence[PanelRow]) -> Iterable[Json]:
    number, top = 1, 0
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
            "panels": [],
        }
        number, top = number + 1, top + 1
        width = WIDTH // min(3, len(row.panels))
        for index, panel in enumerate(row.panels):
            column, line = index % 3, index // 3
            place = {"h": HEIGHT, "w": width, "x": column * width, "y": top + line * HEIGHT}
            yield _panel(panel, number, place)
            number += 1
        top += HEIGHT * -(-len(row.panels) // 3)


def _panel(panel: Panel, number: int, place: Json) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0, "color": {"mode": "palette-classic"}}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 10,
            "showPoints": "never",
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel.kind),
        "targets": [_target(query, "ABCDEFGH"[index]) for index, query in enumerate(panel.queries)],
    }


def _options(kind: str) -> Json:
    legend: Json = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    match kind:
        case "stat":
            shown: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
            return {
                "reduceOptions": shown,
                "textMode": "auto",
                "colorMode": "value",
                "graphMode": "area",
            }
        case "state-timeline":
            return {
                "showValue": "never",
                "mergeValues": True,
                "legend": legend,
                "tooltip": {"mode": "single"},
            }
        case _:
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _target(query: Query, letter: str) -> Json:
    return {
        "refId": letter,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "range": True,
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "skipUrlSync": False,
        "options": [],
    }


def _variable(variable: GrafanaVariable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": "StandardVariableQuery"},
        "hide": 0,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "skipUrlSync": False,
        "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
