"""What queries have in common: whose series they ask for, the choices at the top, and marks of events."""

from tools.dashboards.panels import Annotation, Variable

OF_CLUSTER = 'instance="$instance"'
OF_RUN = 'instance="$instance", run="$run"'

INSTANCE = Variable("instance", "Cluster", "label_values(stoker_up, instance)")
# Text is the run's name, value its number: names are given again.
RUN = Variable(
    "run",
    "Run",
    f"query_result(stoker_run_state{{{OF_CLUSTER}}} == 1)",
    r'/[{,]name="(?<text>[^"]+)".*[{,]run="(?<value>[^"]+)"/',
)


def rises(name: str, selected: str) -> str:
    """Return a query that has a value at each moment when a total has just risen, also while nothing was scraped."""
    now = f"{name}{{{selected}}}"
    return f"{now} - {before(now)} > 0"


def before(series: str) -> str:
    """Return the largest value of the last hour, as of one interval ago."""
    return f"max_over_time({series}[1h] offset $__interval)"


def appears(name: str, selected: str) -> str:
    """Return `rises`, also for a series that begins with its first event, unless all that its target serves is new."""
    now, up = f"{name}{{{selected}}}", f"stoker_up{{{OF_CLUSTER}}}"
    begins = f"({now} unless {before(now)}) and on (instance) {before(up)} == 1"
    return f"{rises(name, selected)} or {begins}"


INCIDENTS = Annotation(
    "Incidents", appears("stoker_incidents_total", OF_CLUSTER), "incident: {{fault}}", "red"
)
REMEDIES = Annotation(
    "Remedies", appears("stoker_run_remedies", OF_RUN), "{{remedy}}: {{state}}", "orange"
)
RESTARTS = Annotation(
    "Restarts", appears("stoker_run_restarts_total", OF_RUN), "restart after {{fault}}", "yellow"
)
ATTEMPTS = Annotation(
    "Launches", rises("stoker_run_attempts", OF_RUN), "{{name}}: new attempt", "blue"
)
LEADERS = Annotation(
    "Supervisors", rises("stoker_lease_token", OF_CLUSTER), "another supervisor leads", "purple"
)
