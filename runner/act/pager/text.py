"""A page in words, and as the fields that webhooks and Alertmanager get."""

from datetime import UTC, datetime
from typing import Any

from runner.act.pager.addresses import Address
from runner.facts.actions import OperatorPage

# Of a title; chosen: a line on a telephone, and less than a text message.
MAX_TITLE_CHARACTERS = 140


def utc(seconds: float) -> str:
    """Write a time, seconds since 1970, to the second, as RFC 3339 has it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%FT%TZ}"


def title(cluster: str, content: OperatorPage) -> str:
    """Return the one line of a page."""
    return f"Stoker {cluster}: {content.text}"[:MAX_TITLE_CHARACTERS]


def body(content: OperatorPage, notes: tuple[str, ...] = ()) -> str:
    """Return the whole page: what, where, evidence, what Stoker does next, and the commands to type."""
    about = [f"run {content.run}"] if content.run else []
    if content.incident:
        about.append(f"incident {content.incident}")
    if content.fault:
        about.append(f"{content.fault}{f' at {content.place}' if content.place else ''}")
    lines = [content.text, *notes]
    if about:
        lines.append(", ".join(about))
    lines += [f"evidence: {line}" for line in content.evidence]
    if content.next:
        lines.append(f"Stoker's next step: {content.next}")
    if content.command:
        lines.append(f"type: {content.command}")
    if ack := ack_command(content):
        lines.append(f"no more repeats: {ack}")
    return "\n".join(lines)


def ack_command(content: OperatorPage) -> str:
    """Return what stops repeats of a page; "" for one that does not repeat."""
    return f"stoker ack {content.incident}" if content.urgent and content.incident else ""


def webhook(
    cluster: str, page_id: str, content: OperatorPage, *, at: float, notes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the JSON of a page for a webhook. `id` is the same whenever the same page is sent again."""
    return {
        "version": 1,
        "id": f"{cluster}/{page_id}",
        "cluster": cluster,
        "time": utc(at),
        "severity": severity(content),
        "title": title(cluster, content),
        "text": body(content, notes),
        "run": content.run,
        "incident": content.incident,
        "fault": content.fault,
        "place": content.place,
        "evidence": list(content.evidence),
        "next": content.next,
        "command": content.command,
        "ack": ack_command(content),
    }


def job(  # noqa: PLR0913 - a page, and the ways to send it
    address: Address,
    cluster: str,
    page_id: str,
    content: OperatorPage,
    *,
    at: float,
    team: str,
    ends_at: float,
    notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what `delivery` sends of one page to an address of any kind."""
    if address.is_alertmanager:
        one = alert(cluster, page_id, content, team=team, starts_at=at, ends_at=ends_at)
        return {"alerts": [one]}
    if address.is_webhook:
        return {"page": webhook(cluster, page_id, content, at=at, notes=notes)}
    return {
        "title": title(cluster, content),
        "text": body(content, notes),
        "urgent": content.urgent,
    }


def severity(content: OperatorPage) -> str:
    """Return "critical" for what waits for a person, "warning" for the rest, as deploy/alerts.yml has them."""
    return "critical" if content.urgent else "warning"


def alert(
    cluster: str,
    page_id: str,
    content: OperatorPage,
    *,
    team: str,
    starts_at: float,
    ends_at: float,
) -> dict[str, Any]:
    """Return a page as an alert of Alertmanager's v2 API."""
    labels = {
        "alertname": "StokerPage",
        "cluster": cluster,
        "run": content.run,
        "incident": content.incident,
        "fault": content.fault,
        "team": team,
        "severity": severity(content),
        "page": page_id,
    }
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {
            "summary": title(cluster, content),
            "description": body(content),
            "command": content.command,
        },
        "startsAt": utc(starts_at),
        "endsAt": utc(ends_at),
    }


def watchdog(cluster: str, *, starts_at: float, ends_at: float) -> dict[str, Any]:
    """Return the alert that is always raised: when it resolves, no supervisor leads."""
    return {
        "labels": {"alertname": "StokerWatchdog", "cluster": cluster, "severity": "none"},
        "annotations": {"summary": f"A supervisor of Stoker leads cluster {cluster}"},
        "startsAt": utc(starts_at),
        "endsAt": utc(ends_at),
    }
