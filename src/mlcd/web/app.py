"""The routes of the page and of its API."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from mlcd.errors import BadInput, MlcdError, ProviderError, RunBusy
from mlcd.report.page import picture_style
from mlcd.report.result_types import result_json
from mlcd.untrusted import Malformed, is_utf8, on_one_line, parse_json
from mlcd.web.api import Api, checked_body
from mlcd.web.feed import MOST_CLIENTS, Feed
from mlcd.web.guard import BODY_BYTES, REPORT_POLICY, Application, Guard, guarded
from mlcd.web.openapi import Operation
from mlcd.web.pages import Pages
from mlcd.web.records import NoSuchRun

_MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NO_STORE = {"cache-control": "no-store"}
READERS = 6
"""Threads that read the store and draw; starting and stopping runs, which waits for processes, has others."""
_readers = ThreadPoolExecutor(READERS, thread_name_prefix="mlcd-page")
T = TypeVar("T")


async def _read(call: Callable[..., T], *values: Any, **named: Any) -> T:
    """Call what only reads, in one of READERS threads: each has the store open once."""
    return await asyncio.get_running_loop().run_in_executor(_readers, partial(call, *values, **named))


def make_app(api: Api, feed: Feed, pages: Pages, guard: Guard) -> Application:
    """The application behind the guard."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        feed.start()
        yield
        feed.close()

    routes: list[BaseRoute] = [
        *(_page(path, draw) for path, draw in pages.routes.items()),
        *(_static(name) for name in STATIC),
        _asset("/static/pictures.css", "text/css", picture_style().encode()),
        Route("/api/openapi.json", _document(api)),
        Route("/api/runs/{run_id}/events", _events(api, feed)),
        Route("/api/runs/{run_id}/pictures/{picture}", _picture(api)),
    ]
    by_path: dict[str, list[Operation]] = {}
    for operation in api.operations:
        if operation.call is not None:
            by_path.setdefault(operation.path, []).append(operation)
    routes += [Route(path, _endpoint(each), methods=[one.method for one in each]) for path, each in by_path.items()]
    errors: dict[Any, Any] = dict.fromkeys((MlcdError, HTTPException, ClientDisconnect, Exception), _refused)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=errors)
    app.router.redirect_slashes = False  # to an address that the client's Host header names
    app.state.pages = pages
    return guarded(app, guard)


STATIC = (
    *(
        "ui.css",
        "ui.js",
        "run.js",
        "runs.js",
        "parts.js",
        "logs.js",
        "why_not.js",
        "what_if.js",
        "serving_what_if.js",
        "sliders.js",
        "new.js",
        "bench.js",
        "catalog.js",
        "charts.js",
    ),
    *("uPlot.iife.min.js", "uPlot.min.css"),
)
"""The files that are served, by name: no path of a request reaches the disk."""


def _static(name: str) -> Route:
    data = (files("mlcd.web") / "static" / name).read_bytes()
    return _asset(f"/static/{name}", _MEDIA[name[name.rindex(".") :]], data)


def _asset(path: str, media_type: str, data: bytes) -> Route:
    async def endpoint(_: Request) -> Response:
        return Response(data, media_type=media_type, headers={"cache-control": "no-cache"})

    return Route(path, endpoint)


def _page(path: str, draw: Callable[[Request], str]) -> Route:
    async def endpoint(request: Request) -> Response:
        policy = {"content-security-policy": REPORT_POLICY} if path.endswith("/report") else {}
        return HTMLResponse(await _read(draw, request), headers={**_NO_STORE, **policy})

    return Route(path, endpoint)


def _endpoint(operations: list[Operation]) -> Callable[[Request], Any]:
    by_method = {operation.method: operation for operation in operations}

    async def endpoint(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        values = {
            each.name: each.read((request.path_params if each.in_path else request.query_params).get(each.name))
            for each in operation.parameters
        }
        if any(isinstance(value, str) and not is_utf8(value) for value in values.values()):
            raise BadInput("a parameter is not text in UTF-8")
        if operation.body is not None:
            values["body"] = checked_body(operation.body, await _body(request))
        run = _read if operation.method == "GET" else run_in_threadpool
        found = await run(operation.call, **values)  # type: ignore[arg-type]
        shown = found if isinstance(found, dict) else result_json(found)
        return JSONResponse(shown, status_code=operation.status, headers=_NO_STORE)

    return endpoint


async def _body(request: Request) -> object:
    """The JSON value that was sent. Raises HTTPException, BadInput."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send the body as application/json")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {BODY_BYTES:,} bytes")
    try:
        return parse_json(bytes(data), "the body")
    except Malformed as error:
        raise BadInput(str(error)) from error


def _document(api: Api) -> Callable[[Request], Any]:
    text = json.dumps(api.document, indent=1)

    async def endpoint(_: Request) -> Response:
        return Response(text, media_type="application/json")

    return endpoint


def _events(api: Api, feed: Feed) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        run_id = request.path_params["run_id"]
        await _read(api.records.rows, run_id)
        if feed.clients >= MOST_CLIENTS:
            raise HTTPException(503, f"{MOST_CLIENTS} clients watch already; close some")
        return StreamingResponse(feed.stream(run_id), media_type="text/event-stream", headers=_NO_STORE)

    return endpoint


def _picture(api: Api) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        run_id, name = request.path_params["run_id"], request.path_params["picture"]
        svg = await _read(api.picture, run_id, name)
        return Response(svg, media_type="image/svg+xml", headers=_NO_STORE)

    return endpoint


async def _refused(request: Request, error: Exception) -> Response:
    """Every error is one sentence: as JSON from the API, else as a page."""
    status, text = _problem(error)
    text = on_one_line(text.encode(errors="replace").decode())
    if request.scope["path"].startswith("/api/"):
        return JSONResponse({"error": text}, status_code=status, headers=_NO_STORE)
    pages: Pages = request.app.state.pages
    page = await asyncio.to_thread(pages.problem, status, text)
    return HTMLResponse(page, status_code=status, headers=_NO_STORE)


def _problem(error: Exception) -> tuple[int, str]:
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, NoSuchRun):
        return 404, str(error)
    if isinstance(error, BadInput):
        return 400, str(error)
    if isinstance(error, RunBusy):
        return 409, str(error)
    if isinstance(error, ClientDisconnect):
        return 400, "the client disconnected"
    if not isinstance(error, MlcdError):
        text = f"unexpected {type(error).__name__}: this is a bug in mlcd; the terminal of `mlcd ui` has the details"
        return 500, text
    return (502 if isinstance(error, ProviderError) else 503), str(error)
