"""The endpoints: Open Inference Protocol v2 over HTTP, with Starlette."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mlcd.server.batching import Batcher
from mlcd.server.model import OnnxModel
from mlcd.server.options import ServerOptions
from mlcd.server.protocol import HEADER, BadRequest, answer, parse
from mlcd.server.stats import as_json, as_prometheus
from mlcd.version import __version__

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response

_MODEL = "/v2/models/{model}"


def make_app(options: ServerOptions, model: OnnxModel) -> "Starlette":
    """An application that serves `model`; requests are batched while it runs."""
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.exceptions import HTTPException  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    endpoints = _Endpoints(options, model)
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
    return Starlette(routes=routes, lifespan=endpoints.lifespan, exception_handlers=errors)


class _Endpoints:
    """The handlers of the endpoints."""

    def __init__(self, options: ServerOptions, model: OnnxModel) -> None:
        self._options, self._model = options, model

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
        self._batcher.close()

    async def infer(self, request: "Request") -> "Response":
        from starlette.responses import Response  # noqa: PLC0415

        self._check_model(request)
        body = await _body(request, self._options.request_bytes)
        inputs, outputs = self._model.inputs, self._model.outputs
        asked = parse(body, request.headers.get(HEADER), inputs=inputs, outputs=outputs, batch=self._options.batch)
        arrays = await self._batcher.submit(asked.feeds, asked.rows)
        named = {spec.name: array for spec, array in zip(outputs, arrays, strict=True)}
        content, length = answer(asked, named, outputs, self._options.model_name)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type="application/octet-stream", headers={HEADER: str(length)})

    async def metrics(self, _: "Request") -> "Response":
        from starlette.responses import PlainTextResponse  # noqa: PLC0415

        return PlainTextResponse(as_prometheus(self._batcher.counts, self._options))

    def about(self, _: "Request") -> dict[str, Any]:
        return {"name": "mlcd", "version": __version__, "extensions": ["binary_tensor_data"]}

    def facts(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        return {
            "name": self._options.model_name,
            "versions": ["1"],
            "platform": "onnxruntime_onnx",
            "inputs": [spec.as_json() for spec in self._model.inputs],
            "outputs": [spec.as_json() for spec in self._model.outputs],
        }

    def ready(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        return {"name": self._options.model_name, "ready": True}

    def stats(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        return as_json(self._batcher.counts, self._options)

    def config(self, request: "Request") -> dict[str, Any]:
        self._check_model(request)
        name, batch = self._options.model_name, self._options.batch
        return {"name": name, "platform": "onnxruntime_onnx", "max_batch_size": batch}

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


async def _refuse(_: "Request", error: BadRequest) -> "Response":
    from starlette.responses import JSONResponse  # noqa: PLC0415

    return JSONResponse({"error": error.problem}, status_code=error.status)


async def _no_such(request: "Request", error: "HTTPException") -> "Response":
    from starlette.responses import JSONResponse  # noqa: PLC0415

    problem = f"{request.method} {request.url.path[:200]}: {error.detail}"
    return JSONResponse({"error": problem}, status_code=error.status_code, headers=error.headers)


async def _body(request: "Request", limit: int) -> bytes:
    """The whole body. Raises BadRequest where it is longer than `limit` bytes, compressed or incomplete."""
    from starlette.requests import ClientDisconnect  # noqa: PLC0415

    if request.headers.get("content-encoding", "identity") != "identity":
        raise BadRequest("compressed bodies are not accepted; send it uncompressed", status=415)
    too_long = BadRequest(f"the body is longer than the limit of {limit} bytes", status=413)
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise too_long
    parts, length = [], 0
    try:
        async for part in request.stream():
            parts.append(part)
            length += len(part)
            if length > limit:
                raise too_long
    except ClientDisconnect:
        raise BadRequest("the client disconnected before its request was complete") from None
    return b"".join(parts)
