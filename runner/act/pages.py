"""Pages: the one way to alert a person. So far it is the supervisor's log; a pager, chat or mail is added here."""

import logging

_LOG = logging.getLogger("stoker")


def page(message: str, to: str = "") -> str:
    """Page a person, or the one that is named, and return where the page went. Repeating it does no harm; it never raises."""
    _LOG.warning("PAGE%s: %s", f" {to}" if to else "", message)
    return "written to the supervisor's log"
