"""A dashboard as rows of panels, and how grafana-foundation-sdk builds it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus
from grafana_foundation_sdk.builders.stat import Panel as StatBuilder
from grafana_foundation_sdk.builders.statetimeline import Panel as StateTimelineBuilder
from grafana_foundation_sdk.builders.table import Panel as TableBuilder
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeriesBuilder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# `number`: the value now. `name`: the name of the series that exists now. `lines`, `stack`: values over time. `states`: a bar a
# series, coloured by its value. `table`: a row a series, now.
Kind = Literal["number", "name", "lines", "stack", "states", "table"]
HEIGHT: Mapping[Kind, int] = {
    "number": 4,
    "name": 4,
    "lines": 8,
    "stack": 8,
    "states": 8,
    "table": 9,
}
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Rows of a table lose what Prometheus adds to each series.
HIDDEN_COLUMNS = {"Time": True, "__name__": True, "instance": True, "job": True}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: `queries` are PromQL by legend, `width` is in columns of 24, `good` and `bad` are colours of values.

    `bad`: the value from which on the number is red; it is green below, or the other way round with `is_low_bad`.
    """

    title: str
    about: str
    queries: Mapping[str, str]
    kind: Kind = "lines"
    unit: str = "short"
    width: int = 8
    bad: float | None = None
    is_low_bad: bool = False
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mark in all panels wherever its query has a value; `title` has labels of the series in double braces."""

    name: str
    query: str
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top: what Prometheus is asked for, and how its answers become text and value."""

    name: str
    label: str
    query: str
    regex: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """What one file has."""

    uid: str
    title: str
    about: str
    variables: Sequence[Variable]
    annotations: Sequence[Annotation]
    rows: Mapping[str, Sequence[Panel]]


def rendered(board: Dashboard) -> str:
    """Return the dashboard's JSON as it is committed."""
    built = json.loads(json.dumps(_builder(board).build(), cls=JSONEncoder))
    for mark, wanted in zip(built["annotations"]["list"], board.annotations, strict=True):
        # The SDK's class lacks these fields of Prometheus' annotations.
        mark |= {"titleFormat": wanted.title, "tagKeys": "", "step": "15s"}
    for number, panel in enumerate(built["panels"], start=1):
        panel["id"] = number
    return json.dumps(built, indent=1, ensure_ascii=False) + "\n"


def _builder(board: Dashboard) -> dashboard.Dashboard:
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags(["stoker"])
        .timezone("browser")
        .refresh("15s")
        .time("now-6h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("Stoker")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["stoker"])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .annotations([_annotation(each) for each in board.annotations])
    )
    for each in board.variables:
        builder.with_variable(_variable(each))
    for title, panels in board.rows.items():
        builder.with_row(dashboard.Row(title))
        for panel in panels:
            builder.with_panel(_panel(panel))
    return builder


def _variable(variable: Variable) -> dashboard.QueryVariable:
    builder = (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query(variable.query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.DISABLED)
    )
    return builder.regex(variable.regex) if variable.regex else builder


def _annotation(mark: Annotation) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(mark.name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(mark.colour)
        .expr(mark.query)
    )


def _panel(panel: Panel) -> Any:
    builder = _of_kind(panel)
    builder.title(panel.title).description(panel.about).datasource(SOURCE).unit(panel.unit)
    builder.span(panel.width).height(HEIGHT[panel.kind])
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    is_now = panel.kind in ("number", "name", "table")
    for number, (legend, query) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend).datasource(SOURCE)
        target.ref_id(chr(ord("A") + number))
        if panel.kind == "table":
            target.format(PromQueryFormat.TABLE)
        builder.with_target(target.instant() if is_now else target.range())
    builder.thresholds(_thresholds(panel))
    return builder


def _of_kind(panel: Panel) -> Any:
    """Return the SDK's builder for the kind of panel."""
    if panel.kind in ("number", "name"):
        number = StatBuilder().graph_mode(common_models.BigValueGraphMode.NONE)
        number.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        if panel.kind == "name":
            number.text_mode(common_models.BigValueTextMode.NAME)
        return number
    if panel.kind == "states":
        return (
            StateTimelineBuilder()
            .show_value(common_models.VisibilityMode.NEVER)
            .line_width(0)
            .fill_opacity(70)
        )
    if panel.kind == "table":
        kept = {"excludeByName": HIDDEN_COLUMNS}
        builder = TableBuilder().align(common_models.FieldTextAlignment.AUTO).inspect(False)
        return builder.with_transformation(
            models.DataTransformerConfig(id_val="organize", options=kept)
        )
    lines = TimeSeriesBuilder().show_points(common_models.VisibilityMode.NEVER).line_width(1)
    if panel.kind == "stack":
        lines.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
        lines.fill_opacity(40)
    return lines


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    below, above = ("red", "green") if panel.is_low_bad else ("green", "red")
    steps = [models.Threshold(value=None, color=below if panel.bad is not None else "text")]
    if panel.bad is not None:
        steps.append(models.Threshold(value=panel.bad, color=above))
    builder = dashboard.ThresholdsConfig()
    return builder.mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
