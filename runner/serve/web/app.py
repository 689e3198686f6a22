"""The page's routes: who may ask for what, and the headers that close a browser to everything else."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.errors import StokerError
from runner.facts.specs.cluster import ClusterSpec
from runner.serve.web import runbook_pages, writes
from runner.serve.web.access import Access, NoAccess, Visitor
from runner.serve.web.feed import Feed
from runner.serve.web.login_page import login_page
from runner.serve.web.records import Records
from runner.store.protocol import Store

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Of the body of a request; chosen.
MAX_BODY_BYTES = 16 * 1024
# Before a wrong token is refused, so that guesses take long; chosen.
REFUSAL_SECONDS = 1.0
# Between two looks at whether an open page may still read; chosen.
CHECK_SECONDS = 5.0
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class PageRoutes:
    """The routes of one cluster's page."""

    def __init__(self, store: Store, cluster: ClusterSpec, access: Access, feed: Feed) -> None:
        self._store, self._cluster, self._access, self._feed = store, cluster, access, feed
        self._records = Records(store, cluster)
        self._static = {
            f"/static/{path.relative_to(STATIC)}": (path.read_bytes(), TYPES[path.suffix])
            for path in STATIC.rglob("*")
            if path.suffix in TYPES
        }
        self._shell = (STATIC / "page.html").read_bytes()

    def app(self) -> ASGIApp:
        """Return the application."""
        routes = [
            Route("/", self._overview),
            Route("/login", self._login_page),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/static/{path:path}", self._file),
            Route("/runbooks", self._runbooks),
            Route("/runbooks/{name}", self._runbook),
            Route("/api/session", self._session),
            Route("/api/events", self._events),
            Route("/api/incidents/{name}", self._incident),
            Route("/api/runs/{run:int}/curves", partial(self._of_run, self._records.curves)),
            Route("/api/runs/{run:int}/lineage", partial(self._of_run, self._records.lineage)),
            Route("/api/requests", self._write, methods=["POST"]),
        ]
        handlers = {NoAccess: _refuse, StokerError: _report, HTTPException: _http_error}
        return _with_headers(Starlette(routes=routes, exception_handlers=handlers))

    def _visitor(self, request: Request) -> Visitor:
        return self._access.visitor(request.headers, _cookies(request))

    # -- pages

    async def _overview(self, request: Request) -> Response:
        try:
            self._visitor(request)
        except NoAccess:
            return RedirectResponse("/login", 303)
        return Response(self._shell, media_type="text/html")

    async def _login_page(self, request: Request) -> Response:
        return self._login_form(request)

    def _login_form(self, request: Request, problem: str = "", code: int = 200) -> Response:
        text = login_page(self._cluster.name, problem, is_private=self._access.is_private)
        return Response(text, code, media_type="text/html")

    async def _log_in(self, request: Request) -> Response:
        try:
            self._access.check_origin(request.headers)
            form = parse_qs((await _body(request)).decode(errors="replace"), max_num_fields=8)
            token, name = (form.get(field, [""])[0] for field in ("token", "name"))
            cookie, seconds = self._access.log_in(token, name)
        except StokerError as error:
            await asyncio.sleep(REFUSAL_SECONDS)
            return self._login_form(request, str(error), 403)
        answer = RedirectResponse("/", 303)
        is_tls = request.url.scheme == "https"
        answer.set_cookie(
            self._access.cookie_name,
            cookie,
            max_age=int(seconds),
            httponly=True,
            secure=is_tls,
            samesite="strict",
        )
        return answer

    async def _log_out(self, request: Request) -> Response:
        self._access.check_origin(request.headers)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(self._access.cookie_name)
        return answer

    async def _file(self, request: Request) -> Response:
        found = self._static.get(request.url.path)
        if found is None:
            raise HTTPException(404, "no such file")
        return Response(found[0], media_type=found[1])

    async def _runbooks(self, request: Request) -> Response:
        self._visitor(request)
        site = self._cluster.runbooks_folder
        text = await run_in_threadpool(runbook_pages.list_page, site)
        return Response(text, media_type="text/html")

    async def _runbook(self, request: Request) -> Response:
        self._visitor(request)
        name, site = request.path_params["name"], self._cluster.runbooks_folder
        text = await run_in_threadpool(runbook_pages.page_of, name, site)
        if text is None:
            raise HTTPException(404, "no such runbook; /runbooks lists them")
        return Response(text, media_type="text/html")

    # -- what the page's script reads and asks

    async def _session(self, request: Request) -> Response:
        visitor = self._visitor(request)
        session = {"role": visitor.role, "name": visitor.name, "check": visitor.check}
        return _json({**session, "cluster": self._cluster.name})

    async def _events(self, request: Request) -> Response:
        self._visitor(request)
        return StreamingResponse(self._allowed_events(request), media_type="text/event-stream")

    async def _allowed_events(self, request: Request) -> AsyncIterator[bytes]:
        """Yield events as long as the visitor may read: a session ends, or its token is replaced, while a page is open."""
        checked_at = time.monotonic()
        async with aclosing(self._feed.events()) as events:
            async for event in events:
                if time.monotonic() - checked_at > CHECK_SECONDS:
                    try:
                        self._visitor(request)
                    except StokerError:
                        return
                    checked_at = time.monotonic()
                yield event

    async def _incident(self, request: Request) -> Response:
        self._visitor(request)
        name = request.path_params["name"]
        return _json(await run_in_threadpool(self._records.incident, name))

    async def _of_run(self, read: Callable[[int], dict[str, Any]], request: Request) -> Response:
        self._visitor(request)
        return _json(await run_in_threadpool(read, request.path_params["run"]))

    async def _write(self, request: Request) -> Response:
        visitor = self._access.operator(request.headers, _cookies(request))
        wanted = writes.decode_wanted(await _body(request))
        send = partial(writes.carry_out, self._store, self._cluster, wanted, by=visitor.name)
        return _json(await run_in_threadpool(send))


def _cookies(request: Request) -> dict[str, str]:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(request.headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: each.value for name, each in cookies.items()}


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"more than {MAX_BODY_BYTES} bytes")
    return body


def _json(value: Any, code: int = 200) -> Response:
    # NaN and infinities become null: a gap in a curve.
    return Response(msgspec.json.encode(value), code, media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    code = 403 if request.method == "POST" else 401
    return _json({"error": str(error)}, code)


async def _report(request: Request, error: Exception) -> Response:
    assert isinstance(error, StokerError)
    return _json({"error": str(error)}, writes.status_code(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Put the page's headers on every answer; a browser that goes away in the middle is no error."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return

    return answer
