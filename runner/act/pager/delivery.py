"""The program that talks to one address: a job as JSON on standard input, the outcome as JSON on standard output.

A process of its own, since a name server, a library or a peer may hang: the sender kills it after a while. It writes no address
and no text of a peer: either may hold a secret.
"""

import base64
import contextlib
import http.client
import json
import logging
import re
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request
from types import FrameType
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

# From the end of the time to that of the process; chosen.
LAST_SECONDS = 5.0
ALERTS_PATH = "/api/v2/alerts"
_SCHEMES = {"alertmanager": "http", "alertmanagers": "https"}
_STATUS = re.compile(r"error[=:] ?(\d{3})\b")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would turn the request into one without its body."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class DeliveryFailed(Exception):
    """The address did not accept what was sent; the text says why."""


def deliver(job: dict[str, Any]) -> None:
    """Send one thing to one address. Raises DeliveryFailed.

    `job`: url, and either `alerts` (for Alertmanager), `page` (for a webhook), `title` and `text` (for apprise), or none of them (a
    sign of life).
    """
    url = str(job["url"])
    if "alerts" in job:
        _request(_alerts_url(url), json.dumps(job["alerts"]).encode(), {})
    elif "page" in job:
        _request(url, json.dumps(job["page"]).encode(), {"Idempotency-Key": job["page"]["id"]})
    elif "text" in job:
        _notify(url, str(job["title"]), str(job["text"]), is_urgent=bool(job["urgent"]))
    else:
        _request(url, None, {})


def _alerts_url(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path.rstrip("/") + ALERTS_PATH
    return urlunsplit(parts._replace(scheme=_SCHEMES[parts.scheme.lower()], path=path))


def _request(url: str, body: bytes | None, headers: dict[str, str]) -> None:
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    headers = {"User-Agent": "stoker", **headers}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if user:
        headers["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    try:
        # The scheme is http or https: the file of addresses was checked.
        request = urllib.request.Request(  # noqa: S310
            urlunsplit(parts._replace(netloc=place, fragment="")), data=body, headers=headers
        )
        with urllib.request.build_opener(_NoRedirect).open(request) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        raise DeliveryFailed(_status(error.code)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DeliveryFailed(_reason(error)) from None


def _status(code: int) -> str:
    return f"it answered HTTP {code} {http.client.responses.get(code, '')}".rstrip()


def _reason(error: BaseException) -> str:
    """Say what went wrong, without a name or an address."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or 'no reason given'}"
    if isinstance(cause, socket.gaierror):
        return "the name of its host is not known here"
    if isinstance(cause, http.client.InvalidURL | ValueError):
        return "its address is no URL"
    if isinstance(cause, TimeoutError):
        return "it did not answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if isinstance(cause, http.client.HTTPException):
        return "it did not answer in HTTP"
    return f"it cannot be reached ({type(cause).__name__})"


def _notify(url: str, title: str, text: str, *, is_urgent: bool) -> None:
    try:
        import apprise
    except ImportError:
        raise DeliveryFailed(
            "apprise is not installed in the supervisor's Python: `pip install 'stoker[pages]'`"
        ) from None
    asset = apprise.AppriseAsset(app_id="Stoker", secure_logging=True, async_mode=False)
    target = apprise.Apprise(asset=asset)
    # What it logs may hold parts of an address: of it only the status of an answer is passed on.
    with apprise.LogCapture(level=logging.WARNING) as log:  # type: ignore[no-untyped-call]
        is_known = target.add(url)
        is_sent = is_known and target.notify(
            body=text,
            title=title,
            notify_type=apprise.NotifyType.FAILURE if is_urgent else apprise.NotifyType.WARNING,
            body_format=apprise.NotifyFormat.TEXT,
        )
        logged = log.getvalue() if not is_sent else ""
    if not is_known:
        raise DeliveryFailed("apprise knows no such address; see `stoker docs paging`")
    if not is_sent:
        code = _STATUS.search(logged)
        raise DeliveryFailed(_status(int(code[1])) if code else "apprise could not send it")


def main() -> None:
    """Do the job of standard input."""
    job = json.load(sys.stdin)
    seconds = float(job["seconds"])

    def on_alarm(_: int, __: FrameType | None) -> None:
        # A library may swallow the error; the next alarm ends the process, even if its parent is gone.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise TimeoutError

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, LAST_SECONDS)
    error = ""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            deliver(job)
    except DeliveryFailed as failed:
        error = str(failed)
    except TimeoutError:
        error = "it did not answer in time"
    except Exception as bug:  # noqa: BLE001 - bulkhead: a bug of a library is an outcome, without its text
        error = f"sending failed: {type(bug).__name__}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    json.dump({"error": error}, sys.stdout)


if __name__ == "__main__":
    main()
