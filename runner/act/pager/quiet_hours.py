"""Quiet hours: until when what can wait waits."""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo


def quiet_until(hours: str, zone: str, now: float) -> float:
    """Return when the quiet hours around a moment end, both seconds since 1970; the moment itself outside of them.

    `hours`: "22:00-07:00", from the first minute up to the last; "": none. On a machine that does not know the zone, none.
    """
    try:
        place = ZoneInfo(zone) if hours else None
    except (OSError, ValueError, LookupError):
        place = None
    if place is None:
        return now
    begin, end = (time.fromisoformat(each) for each in hours.split("-"))
    local = datetime.fromtimestamp(now, place)
    clock = local.time()
    is_quiet = begin <= clock < end if begin <= end else clock >= begin or clock < end
    if not is_quiet:
        return now
    day = local.date() + timedelta(days=clock >= end)
    return datetime.combine(day, end, place).timestamp()
