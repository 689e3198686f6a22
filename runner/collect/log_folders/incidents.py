"""Incidents: the verdicts on what was read, launch by launch: the last launch first, then what ended the earlier ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from runner.collect.diagnosis import MAX_NUMERIC, Log, verdicts_on
from runner.collect.log_folders.inputs import LogSource
from runner.collect.log_folders.origins import NEWEST_PART, Launch
from runner.collect.metric_files.curves import curves_in
from runner.collect.numeric_matches import match_of_finding
from runner.collect.short_logs import ShortLogReader
from runner.detect.numerics.numerics import Numerics
from runner.facts.causes import Verdict
from runner.facts.matches import LoggedStep, Match
from runner.facts.specs.planned_changes import PlannedChange

# Earlier launches whose end is judged, the newest first; chosen.
MAX_EARLIER = 20


class LaunchIncident(NamedTuple):
    """A verdict, and of which launch: "" if there is one launch only, or none is known.

    `local_rank`: which process of its node wrote the deciding line, where its path shows that and nothing shows the rank.
    """

    verdict: Verdict
    launch_name: str = ""
    local_rank: int | None = None


@dataclass(slots=True)
class CurveFindings:
    """What detectors found in a file of metrics that lies beside logs."""

    matches: list[Match] = field(default_factory=list)
    # Of short curves as a whole, for where nothing else shows an incident.
    of_windows: list[Match] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    num_samples: int = 0


@dataclass(slots=True)
class _Launch:
    name: str = ""
    matches: list[Match] = field(default_factory=list)
    of_windows: list[Match] = field(default_factory=list)
    steps: list[LoggedStep] = field(default_factory=list)

    def verdicts(self) -> list[Verdict]:
        return verdicts_on(self.matches, self.of_windows, self.steps)


def read_curves(paths: Sequence[str], planned: Sequence[PlannedChange] = ()) -> CurveFindings:
    """Judge metric files; nothing raises. `planned` changes are no findings."""
    found = CurveFindings()
    for curve in (curve for path in paths for curve in curves_in(Path(path))):
        numerics, num_found, window = Numerics(planned=planned), 0, ShortLogReader()
        for number, (record, where, extra) in enumerate(curve.samples(), 1):
            line = re.search(r"\d+$", where) if where.startswith(("line ", "entry ")) else None
            window.add_sample(record, number if line is None else int(line[0]))
            for finding in numerics.judge(record, extra):
                if finding.severity == "incident" and num_found < MAX_NUMERIC:
                    num_found += 1
                    at = int(line[0]) if line is not None else number
                    found.matches.append(match_of_finding(finding, str(curve.path), at))
        shown = window.finding_of_curve(curve.all_columns)
        if not num_found and not planned and shown is not None:
            found.of_windows.append(match_of_finding(shown[0], str(curve.path), shown[1]))
        found.num_samples += curve.num_samples
        found.warnings += [f"{curve.path}: {one}" for one in (*curve.warnings, *numerics.warnings)]
    return found


def judge(
    logs: Sequence[tuple[LogSource, Log]], curves: CurveFindings | None = None
) -> list[LaunchIncident]:
    """Return the incidents, the root cause of the last launch first. `curves` belong to no launch alone."""
    local_ranks = {
        source.path: source.origin.local_rank for source, _ in logs if source.origin.rank is None
    }
    return [
        incident._replace(local_rank=local_ranks.get(incident.verdict.evidence[0].file))
        for incident in _judged(logs, curves or CurveFindings())
    ]


def _judged(logs: Sequence[tuple[LogSource, Log]], curves: CurveFindings) -> list[LaunchIncident]:
    launches, shared = _by_launch(logs)
    shared.matches += curves.matches
    shared.of_windows += curves.of_windows
    if not launches:
        return [LaunchIncident(verdict) for verdict in shared.verdicts()]
    newest, *earlier = (launches[key] for key in sorted(launches, reverse=True))
    newest.matches += shared.matches
    newest.of_windows += shared.of_windows
    newest.steps += shared.steps
    name = newest.name if newest.name != NEWEST_PART else ""
    found = [LaunchIncident(verdict, name) for verdict in newest.verdicts()]
    has_steps = bool(newest.steps)
    for launch in earlier[:MAX_EARLIER]:
        for verdict in launch.verdicts()[:1]:
            recovered = verdict.recovered or has_steps
            found.append(LaunchIncident(replace(verdict, recovered=recovered), launch.name))
        has_steps = has_steps or bool(launch.steps)
    return found


def _by_launch(logs: Sequence[tuple[LogSource, Log]]) -> tuple[dict[Launch, _Launch], _Launch]:
    """Group logs by launch; what is of no launch, or of the only one of its kind, is shared."""
    kinds: dict[str, set[Launch]] = {}
    for source, _ in logs:
        kinds.setdefault(_kind(source), set()).add(source.origin.launch)
    # Jobs that each had attempts: the jobs came one after the other.
    several = [kind for kind, found in kinds.items() if kind and len(found) > 1]
    launches: dict[Launch, _Launch] = {}
    shared = _Launch()
    for source, log in logs:
        launch = shared
        if several and _kind(source) == several[0]:
            launch = launches.setdefault(source.origin.launch, _Launch(source.origin.launch_name))
        launch.matches += log.matches
        launch.of_windows += log.of_windows
        if source.origin.rank is not None and log.num_bytes:
            launch.matches.append(_wrote(source.path, source.origin.rank))
        if log.steps.survived is not None:
            launch.steps.append(log.steps.survived)
    return launches, shared


def _wrote(path: str, rank: int) -> Match:
    """Return a match that says only that a rank wrote a log: one of many that alone has a fault is a culprit."""
    return Match(
        signature="rank-wrote",
        fault="",
        layer="other",
        scope="rank",
        weight="supporting",
        file=path,
        rank=rank,
    )


def _kind(source: LogSource) -> str:
    return source.origin.launch_name.partition(" ")[0]
