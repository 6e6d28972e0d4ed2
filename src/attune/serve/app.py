"""The routes of the server, and what every request has to pass: a token, an origin, a size, a place."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attune.recognizer import Recognizer, Transcript
from attune.serve import answers, collect, realtime
from attune.serve.engine import ChunkDecoding, Engine
from attune.serve.monitor import Monitor
from attune.serve.problems import ApiError, answer_problem
from attune.serve.settings import ServerSettings
from attune.serve.speakers import diarized
from attune.serve.uploads import Upload, read_upload

CLOSED = 499  # as proxies count a client that did not wait for its answer
STOP_SECONDS = 60.0  # that waiting requests have once the server is asked to stop
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
PAGE = Path(str(files("attune") / "serve" / "page"))
PAGE_FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css", "/tap.js": "tap.js"}
OPEN_PATHS = ("/health", *PAGE_FILES)  # without a token: the page asks for it
COUNTED = (
    *("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/models", "/v1/realtime"),
    *("/health", "/metrics", "/collect"),
)
SUBPROTOCOL_TOKEN = "openai-insecure-api-key."  # how browsers send a token to a WebSocket


@dataclass(frozen=True, slots=True)
class Server:
    """The engines by the names that clients use, the first being the default, and how to serve."""

    engines: Mapping[str, Engine]
    settings: ServerSettings
    monitor: Monitor
    speakers: Engine | None = None  # finds who speaks when, for any of the models

    def engine(self, name: str | None) -> Engine:
        """The model that a request names; any name stands for an only model, as clients insist on sending one."""
        if name is not None and name in self.engines:
            return self.engines[name]
        if name is None or len(self.engines) == 1:
            return next(iter(self.engines.values()))
        raise ApiError(404, f"No model {name!r}. Available: {', '.join(self.engines)}.", "model", "model_not_found")


def make_app(
    models: Mapping[str, Recognizer], settings: ServerSettings, speakers: Recognizer | None = None
) -> Starlette:
    """The application that serves these models; one that diarizes adds speakers to the words of all."""
    monitor = Monitor()
    engines = {name: Engine(name, each, settings.limits, monitor) for name, each in models.items()}
    diarizer = Engine("speakers", speakers, settings.limits, monitor) if speakers else None
    server = Server(engines, settings, monitor, diarizer)
    running = [*engines.values(), *([diarizer] if diarizer else [])]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for engine in running:
            engine.start()
        yield
        for engine in running:
            await asyncio.to_thread(engine.stop, STOP_SECONDS)

    app = Starlette(routes=_routes(server), lifespan=lifespan)
    for kind in (ApiError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_problem)
    app.add_middleware(Gate, server=server)
    return app


def _routes(server: Server) -> list[Route | WebSocketRoute]:
    async def transcriptions(request: Request) -> Response:
        return await _transcribe(server, request, translate=False)

    async def translations(request: Request) -> Response:
        return await _transcribe(server, request, translate=True)

    async def models(request: Request) -> Response:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "attune"} for name in server.engines]
        return JSONResponse({"object": "list", "data": listed})

    async def one_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in server.engines:
            raise ApiError(404, f"No model {name!r}.", "model", "model_not_found")
        return JSONResponse({"id": name, "object": "model", "created": 0, "owned_by": "attune"})

    async def health(request: Request) -> Response:
        return JSONResponse(
            {"status": "ok", "models": list(server.engines), "collects": server.settings.collect is not None}
        )

    async def metrics(request: Request) -> Response:
        for name, engine in server.engines.items():
            server.monitor.waiting.labels(name).set(len(engine.queue))
        return Response(server.monitor.text(), media_type="text/plain; version=0.0.4")

    async def save(request: Request) -> Response:
        return JSONResponse(await collect.save_row(request, server.settings), 201)

    async def socket(websocket: realtime.WebSocket) -> None:
        await realtime.serve(websocket, server.engine, _client(websocket))

    return [
        Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
        Route("/v1/audio/translations", translations, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/collect", save, methods=["POST"]),
        *(Route(path, _page_file(PAGE / name)) for path, name in PAGE_FILES.items()),
        WebSocketRoute("/v1/realtime", socket),
    ]


def _page_file(path: Path) -> Callable[[Request], FileResponse]:
    return lambda request: FileResponse(path, headers={"Cache-Control": "no-cache"})


async def _transcribe(server: Server, request: Request, translate: bool) -> Response:
    upload = await read_upload(request, server.settings.limits, translate)
    engine = server.engine(upload.model)
    _require_possible(upload, engine.recognizer, server)
    words = upload.words or upload.logprobs or upload.format in ("srt", "vtt", "diarized_json")
    parts = engine.transcribe(_client(request), upload.samples, upload.hints, ChunkDecoding(words, upload.temperature))
    if upload.format == "diarized_json" and server.speakers:
        turns = await server.speakers.find_turns(_client(request), upload.samples)
        found = engine.recognizer.join(await _all_of(parts, request), upload.hints)
        join = partial(engine.join, language=found.language)
        return JSONResponse(diarized(upload, found, turns, join))
    if upload.is_stream and upload.format in ("json", "verbose_json"):
        first = await anext(parts, None)  # what is wrong with the request is answered with a status
        return StreamingResponse(_events(engine, upload, first, parts), media_type="text/event-stream")
    return answers.answer(upload, engine.recognizer.join(await _all_of(parts, request), upload.hints))


async def _all_of(parts: AsyncGenerator[Transcript, None], request: Request) -> list[Transcript]:
    """The transcripts of all chunks, unless the client has gone meanwhile."""
    found: list[Transcript] = []
    async with aclosing(parts):
        async for part in parts:
            found.append(part)
            if await request.is_disconnected():
                raise ApiError(CLOSED, "The client has closed the connection.")
    return found


def _require_possible(upload: Upload, recognizer: Recognizer, server: Server) -> None:
    if upload.format == "diarized_json":
        _require_diarizable(upload, server)
    if upload.hints.translate and "speech_task" not in {each.name for each in fields(recognizer.recipe.model.config)}:
        raise ApiError(422, "This model transcribes; translations need a multilingual Whisper.", "model")


def _require_diarizable(upload: Upload, server: Server) -> None:
    longest = server.settings.limits.diarized_seconds
    if server.speakers is None:
        raise ApiError(422, "diarized_json needs a server with a model of speakers (--speakers).", "response_format")
    if upload.is_stream or upload.hints.translate:
        raise ApiError(422, "diarized_json is for transcriptions, and has no stream.", "response_format")
    if upload.seconds > longest:
        raise ApiError(413, f"diarized_json takes recordings of up to {longest:.0f} s.", "file")


async def _events(
    engine: Engine, upload: Upload, first: Transcript | None, rest: AsyncIterator[Transcript]
) -> AsyncIterator[str]:
    """What each chunk adds to the text, and the whole at the end."""
    found: list[Transcript] = []
    written = ""
    try:
        while first is not None:
            found.append(first)
            text = engine.recognizer.join(found, upload.hints).text
            yield answers.delta(text.removeprefix(written))
            written, first = text, await anext(rest, None)
        yield answers.done(upload, engine.recognizer.join(found, upload.hints))
    except ApiError as error:  # the status is already sent
        yield answers.event(error.as_json())


def _client(connection: HTTPConnection) -> str:
    """Who asks, for taking turns: the caller's address."""
    return connection.client.host if connection.client else "local"


class Gate:
    """Lets a request in: who has the token, from a page of this server or none, not too large, while there is room."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self.app, self.server = app, server
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it in, or say why not."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            self._admit(HTTPConnection(scope))
        except ApiError as error:
            await self._refuse(error, scope, receive, send)
            return
        await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.perf_counter(), 101
        body = 0

        async def counted() -> Message:
            nonlocal body
            message = await receive()
            body += len(message.get("body", b""))
            if body > self.server.settings.limits.upload_bytes:
                raise self._too_large()
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self.open += 1
        self.server.monitor.open.set(self.open)
        try:
            await self.app(scope, counted if scope["type"] == "http" else receive, noted)
        finally:
            self.open -= 1
            self.server.monitor.open.set(self.open)
            self.server.monitor.answered(_known_path(scope["path"]), status, time.perf_counter() - began)

    def _admit(self, connection: HTTPConnection) -> None:
        settings = self.server.settings
        self._require_origin(connection)
        if settings.token and connection.url.path not in OPEN_PATHS and not _has_token(connection, settings.token):
            raise ApiError(401, "Send the server's token: Authorization: Bearer TOKEN.", code="invalid_api_key")
        length = connection.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > settings.limits.upload_bytes:
            raise self._too_large()
        if self.open >= settings.limits.open_requests and connection.url.path != "/health":
            raise ApiError(503, "The server is busy. Try again in a moment.")

    def _require_origin(self, connection: HTTPConnection) -> None:
        """Pages of other sites may not use a server that trusts whoever can reach it, under any name of its own."""
        host = connection.headers.get("host", "")
        if self.server.settings.is_local and host.rpartition(":")[0] not in LOCAL_NAMES and host not in LOCAL_NAMES:
            raise ApiError(403, "This server accepts requests to localhost only. Start it with --host to serve others.")
        origin = connection.headers.get("origin")
        if origin and origin.partition("://")[2] != host:
            raise ApiError(403, "Requests from pages of other sites are refused.")

    def _too_large(self) -> ApiError:
        return ApiError(413, f"The request is larger than {self.server.settings.limits.upload_mib} MiB.", "file")

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        self.server.monitor.answered(_known_path(scope["path"]), error.status, 0.0)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": str(error)[:120]})
            return
        response = await answer_problem(Request(scope, receive), error)
        await response(scope, receive, send)


def _has_token(connection: HTTPConnection, token: str) -> bool:
    offered = [connection.headers.get("authorization", "").removeprefix("Bearer ")]
    for name in connection.headers.get("sec-websocket-protocol", "").split(","):
        offered.append(name.strip().removeprefix(SUBPROTOCOL_TOKEN))
    return any(hmac.compare_digest(each.encode(), token.encode()) for each in offered)


def _known_path(path: str) -> str:
    """The path as a label: made-up ones must not fill the memory."""
    if path.startswith("/v1/models/"):
        return "/v1/models/…"
    return path if path in COUNTED else "other"
