"""The `pages` section of cluster.yaml: where pages go, when, and how often."""

from typing import Annotated

from runner.facts.specs.setting import Default, Limits, LongSeconds
from runner.facts.wire import Value

# Names in the file of addresses: who is paged unless a page of the runbooks names another; and what a dead-man's switch watches.
ON_CALL, HEARTBEAT = "oncall", "heartbeat"


class PagesSpec(Value):
    """Where pages go. Addresses are in a file of their own, because most of them contain a secret."""

    addresses_file: Annotated[
        str,
        "File of addresses, a name and an address a line: `oncall slack://...`. `stoker docs paging` has the forms. It must be "
        "readable by its owner only, and lie on every machine that may lead; relative to the file's folder.",
        Default("none: pages reach the supervisor's log and `stoker story` alone"),
    ] = ""
    to: Annotated[
        str, "Name of the addresses that get what no page of the runbooks sends to a team."
    ] = ON_CALL
    escalate_to: Annotated[
        str,
        "Name of the addresses that get an urgent page that no person has acknowledged (`stoker ack`).",
        Default("none"),
    ] = ""
    escalate_seconds: Annotated[LongSeconds, "Time after an urgent page until they get it."] = 900.0
    repeat_seconds: Annotated[
        LongSeconds,
        "Time after which an urgent page that no person has acknowledged is sent again, ten times at most. Alertmanager repeats by "
        "itself (`repeat_interval`). 0: never.",
    ] = 1800.0
    quiet_hours: Annotated[
        str,
        "Hours of the day, such as `22:00-07:00`, in which only urgent pages are sent; the others wait until they end.",
        Default("none"),
    ] = ""
    time_zone: Annotated[str, "Time zone of `quiet_hours`, such as `Europe/Paris`."] = "UTC"
    max_per_hour: Annotated[
        int,
        Limits("pages", least=1, most=1000),
        "Pages that are sent one by one within an hour; further ones wait and are sent together in one.",
    ] = 20
    every_rung: Annotated[
        bool,
        "Whether each rung that is taken is paged, restarts among them, not only those for which the runbook says `page: true`.",
    ] = False
    heartbeat_seconds: Annotated[
        float,
        Limits("seconds", least=1, most=3600),
        "Time between two signs of life to the addresses called `heartbeat` and to Alertmanager: a dead-man's switch there "
        "notices when they stop.",
    ] = 60.0
    send_seconds: Annotated[
        float,
        Limits("seconds", least=1, most=120),
        "Time in which an address must answer; then it is tried again later.",
    ] = 15.0
