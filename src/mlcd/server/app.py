"""The endpoints: Open Inference Protocol v2 over HTTP, with Starlette."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlcd.server.batching import Batcher
from mlcd.server.memory import Held, Memory
from mlcd.server.model import Model
from mlcd.server.options import Engine, ServerOptions
from mlcd.server.origin import Application, is_loopback, loopback_only
from mlcd.server.protocol import HEADER, BadRequest, InferRequest, answer, json_length, parse
from mlcd.server.stats import as_json, as_prometheus
from mlcd.version import __version__

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")
_MODEL = "/v2/models/{model}"
_PLATFORMS = {Engine.ONNX_RUNTIME: "onnxruntime_onnx", Engine.PYTORCH: "pytorch_libtorch"}
"""The engines' names in the protocol."""
_LARGE_JSON_BYTES = 16 * 1024
"""Longer ones are read by a thread, slice by slice, so that others are answered meanwhile."""
_LARGE_JSON_NUMBERS = 4096


def make_app(options: ServerOptions, model: Model, memory: Memory) -> Application:
    """An application that serves `model`; requests are batched while it runs, and count in `memory`."""
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.exceptions import HTTPException  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    endpoints = _Endpoints(options, model, memory)
    routes = [
        Route("/v2", _json_of(endpoints.about)),
        Route("/v2/health/live", _json_of(lambda _: {"live": True})),
        Route("/v2/health/ready", _json_of(lambda _: {"ready": True})),
        Route("/metrics", endpoints.metrics),
    ]
    for place in (_MODEL, f"{_MODEL}/versions/{{version}}"):
        routes += [
            Route(place, _json_of(endpoints.facts)),
            Route(f"{place}/ready", _json_of(endpoints.ready)),
            Route(f"{place}/stats", _json_of(endpoints.stats)),
            Route(f"{place}/config", _json_of(endpoints.config)),
            Route(f"{place}/infer", endpoints.infer, methods=["POST"]),
        ]
    # Every error is JSON with one line, as the protocol asks.
    errors: dict[Any, Any] = {BadRequest: _refuse, HTTPException: _no_such}
    found = Starlette(routes=routes, lifespan=endpoints.lifespan, exception_handlers=errors)
    found.router.redirect_slashes = False  # to an address that the client's Host header names
    return loopback_only(found, options.allowed_hosts) if is_loopback(options.host) else found


class _Endpoints:
    """The handlers of the endpoints."""

    def __init__(self, options: ServerOptions, model: Model, memory: Memory) -> None:
        self._options, self._model, self._memory = options, model, memory
        # One thread: several would take the interpreter from the event loop in turn.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="json")

    @asynccontextmanager
    async def lifespan(self, _: "Starlette") -> AsyncIterator[None]:
        options = self._options
        self._batcher = Batcher(
            self._model.run,
            max_rows=options.batch,
            replicas=options.replicas,
            delay_seconds=options.delay_seconds,
            limit=options.queue,
        )
        yield
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._batcher.close()

    async def infer(self, request: "Request") -> "Response":
        from mlcd.server.answers import answer_in_parts  # noqa: PLC0415

        self._check_model(request)
        held = self._memory.hold()
        try:
            asked = await self._parsed(request, held)
            arrays = await self._outputs(request, asked)
            held.set(asked.feed_bytes + sum(array.nbytes for array in arrays))
            named = {spec.name: array for spec, array in zip(self._model.outputs, arrays, strict=True)}
            numbers = sum(named[wanted.name].size for wanted in asked.outputs if not wanted.binary)
            work = partial(answer, asked, named, self._model.outputs, self._options.model_name)
            parts, length = await self._done(work, aside=numbers > _LARGE_JSON_NUMBERS)
            held.set(sum(map(len, parts)))
        except BaseException:
            held.set(0)
            raise
        return answer_in_parts(parts, length, held)

    async def _parsed(self, request: "Request", held: Held) -> InferRequest:
        body = await _body(request, self._options.request_bytes, held)
        length = request.headers.get(HEADER)
        inputs, outputs = self._model.inputs, self._model.outputs
        work = partial(parse, body, length, inputs=inputs, outputs=outputs, batch=self._options.batch)
        asked = await self._done(work, aside=json_length(body, length) > _LARGE_JSON_BYTES)
        held.resize(asked.feed_bytes)  # the text is no longer needed; the bytes of binary tensors are the feeds
        return asked

    async def _done(self, work: Callable[[], T], *, aside: bool) -> T:
        """What `work` returns; `aside` has a thread do it."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, work) if aside else work()
        except MemoryError:
            raise BadRequest("the server has not enough memory for this now; try again later", status=503) from None

    async def _outputs(self, request: "Request", asked: InferRequest) -> list[NDArray[Any]]:
        """The model's outputs. Gives up the place in the queue when the client disconnects."""
        waiting = self._batcher.submit(asked.feeds, asked.rows)
        connection = request.scope.get("state", {}).get("connection")
        if connection is None:
            return await waiting
        connection.give_up = partial(_give_up, waiting)
        try:
            return await waiting
        finally:
            connection.give_up = None

    async def metrics(self, _: "Request") -> "Response":
        from starlette.responses import PlainTextResponse  # noqa: PLC0415

        return PlainTextResponse(
            as_prometheus(self._batcher.counts, self._options, self._memory, gpu_bytes=self._model.gpu_bytes())
        )

    def about(self, _: "Request") -> dict[str, Any]:
        return {"name": "mlcd", "version": __version__, "extensions": ["binary_tensor_data"]}

    def facts(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        return {
            "name": self._options.model_name,
            "versions": ["1"],
            "platform": _PLATFORMS[self._options.engine],
            "inputs": [spec.as_json() for spec in self._model.inputs],
            "outputs": [spec.as_json() for spec in self._model.outputs],
        }

    def ready(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        return {"name": self._options.model_name, "ready": True}

    def stats(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        return as_json(self._batcher.counts, self._options, self._memory, gpu_bytes=self._model.gpu_bytes())

    def config(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        name, batch = self._options.model_name, self._options.batch
        return {"name": name, "platform": _PLATFORMS[self._options.engine], "max_batch_size": batch}

    def _check_model(self, request: "Request") -> None:
        given, name = request.path_params, self._options.model_name
        if given["model"] != name:
            raise BadRequest(f"no model {given['model'][:100]!r} is served here; this server has {name!r}", status=404)
        if given.get("version", "1") != "1":
            raise BadRequest(f"model {name} has version 1 only", status=404)


def _json_of(make: Callable[["Request"], dict[str, Any]]) -> Callable[["Request"], Any]:
    from starlette.responses import JSONResponse  # noqa: PLC0415

    async def endpoint(request: "Request") -> "Response":
        return JSONResponse(make(request))

    return endpoint


def _give_up(waiting: "asyncio.Future[list[NDArray[np.generic]]]") -> None:
    if not waiting.done():
        waiting.set_exception(BadRequest("the client disconnected before it was answered"))


async def _refuse(_: "Request", error: BadRequest) -> "Response":
    from starlette.responses import JSONResponse  # noqa: PLC0415

    headers = {"Retry-After": "1"} if error.status == 503 else None
    return JSONResponse({"error": _encodable(error.problem)}, status_code=error.status, headers=headers)


async def _no_such(request: "Request", error: "HTTPException") -> "Response":
    from starlette.responses import JSONResponse  # noqa: PLC0415

    # Not request.url: it is built from the Host header, which may be anything.
    problem = f"{request.method} {request.scope['path'][:200]}: {error.detail}"
    return JSONResponse({"error": _encodable(problem)}, status_code=error.status_code, headers=error.headers)


def _encodable(text: str) -> str:
    """The text without what UTF-8 cannot express, on one line."""
    return " ".join(text.encode(errors="replace").decode().splitlines())


async def _body(request: "Request", limit: int, held: Held) -> bytearray:
    """The whole body. Raises BadRequest where it is longer than `limit` bytes, compressed or incomplete (4xx).

    Counts as `held` as it arrives (raises BadRequest, 503): a length that is only declared takes nothing from others.
    """
    from starlette.requests import ClientDisconnect  # noqa: PLC0415

    if request.headers.get("content-encoding", "identity") != "identity":
        raise BadRequest("compressed bodies are not accepted; send it uncompressed", status=415)
    too_long = BadRequest(f"the body is longer than the limit of {limit} bytes", status=413)
    declared = request.headers.get("content-length", "0")
    if len(declared) > 15 or (declared.isdecimal() and int(declared) > limit):
        raise too_long
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise too_long
            held.resize(len(body))
    except ClientDisconnect:
        raise BadRequest("the client disconnected before its request was complete") from None
    return body
