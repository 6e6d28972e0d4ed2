"""Serve models over HTTP: OpenAI's transcription endpoints, a WebSocket, and a page with a microphone."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.catalog import own_name
from attune.cli._recordings import add_precision, decoding_of
from attune.cli._terminal import at_least, port
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.recognizer import Recognizer
    from attune.serve.settings import ServerSettings

HELP = "serve models over HTTP with OpenAI's API, and a page to try them"
EXAMPLE = "attune serve runs/whisper --name small=hf://openai/whisper-small --port 8000"

TOKEN_VARIABLE = "ATTUNE_SERVE_TOKEN"
MISSING = "attune serve needs more packages. Run: pip install 'attune-speech[serve]'"


def add_arguments(parser: ArgumentParser) -> None:
    """Take models, an address, and limits."""
    parser.add_argument("model", help="run, model folder, or URL of one; the default for requests")
    parser.add_argument(
        "--name", action="append", default=[], metavar="ALIAS=MODEL", help="another model and the name it is served by"
    )
    parser.add_argument(
        "--speakers", metavar="MODEL", help="a model that diarizes: response_format=diarized_json has its speakers"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine)")
    parser.add_argument("--port", type=port, default=8000, help="port to listen on (default 8000; 0: a free one)")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help=f"token that clients must send (or set {TOKEN_VARIABLE})"
    )
    parser.add_argument("--no-token", action="store_true", help="serve other machines without a token")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device type (default auto)")
    add_precision(parser)
    parser.add_argument(
        "--collect", type=Path, metavar="FOLDER", help="let the page save corrected transcripts as training rows there"
    )
    parser.add_argument("--max-upload", type=at_least(1), default=100, metavar="MIB", help="largest file (default 100)")
    parser.add_argument(
        "--max-hours", type=float, default=4.0, metavar="HOURS", help="longest recording (default 4 hours)"
    )
    parser.add_argument(
        "--max-requests", type=at_least(1), default=128, metavar="N", help="requests at once (default 128)"
    )
    parser.add_argument(
        "decode", nargs="*", default=[], metavar="decode.key=value", help="change the search, e.g. decode.search=beam"
    )


def run(arguments: Namespace) -> int:
    """Serve until a signal; what is being answered then is finished first."""
    settings = _settings(arguments)
    try:
        import uvicorn

        from attune.serve.app import STOP_SECONDS, make_app
    except ModuleNotFoundError as error:
        raise ConfigError(MISSING) from error
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # what is wrong with a form, its sender is answered
    with _listening(arguments.host, arguments.port) as listening:
        app = make_app(_models(arguments), settings, _speakers(arguments))
        config = uvicorn.Config(
            app, log_level="warning", ws_max_size=1 << 20, timeout_graceful_shutdown=round(STOP_SECONDS)
        )
        _announce(arguments.host, listening.getsockname()[1])
        uvicorn.Server(config).run([listening])
    return 0


def _listening(host: str, port: int) -> socket.socket:
    """The server's socket, so that a port in use is reported before models are loaded."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"Cannot listen on {host}:{port} ({error}). Use another --host or --port.") from error


def _settings(arguments: Namespace) -> ServerSettings:
    from attune.serve.settings import ServerLimits, ServerSettings

    token, is_local = _token(arguments), _is_loopback(arguments.host)
    if not is_local and not token and not arguments.no_token:
        raise ConfigError(
            f"--host {arguments.host} is reachable from other machines. Set {TOKEN_VARIABLE} or --token-file, or pass "
            "--no-token if the network is trusted."
        )
    limits = ServerLimits(
        upload_mib=arguments.max_upload,
        audio_seconds=arguments.max_hours * 3600,
        open_requests=arguments.max_requests,
    )
    return ServerSettings(limits=limits, token=token, collect=arguments.collect, is_local=is_local)


def _token(arguments: Namespace) -> str | None:
    if arguments.token_file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = arguments.token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {arguments.token_file} cannot be read.") from error
    if not token:
        raise ConfigError(f"--token-file {arguments.token_file} is empty.")
    return str(token)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _models(arguments: Namespace) -> dict[str, Recognizer]:
    from attune.api import load
    from attune.contracts import TextTask

    named = [(_short_name(arguments.model), arguments.model), *map(_alias, arguments.name)]
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"Two models are called {twice}. Give one another name: --name ALIAS=MODEL.")
    decode = decoding_of(arguments.decode)
    loaded: dict[str, Recognizer] = {}
    for name, source in named:
        print(f"loading {name} …", flush=True)
        loaded[name] = load(source, arguments.device, precision=arguments.precision, decode=decode)
        if not isinstance(loaded[name].loaded.task, TextTask):
            task = own_name(loaded[name].recipe.task.name)
            raise ConfigError(f"{source} was trained to {task}; attune serve transcribes.")
    return loaded


def _speakers(arguments: Namespace) -> Recognizer | None:
    from attune.api import load

    if arguments.speakers is None:
        return None
    print("loading speakers …", flush=True)
    found = load(arguments.speakers, arguments.device, precision=arguments.precision)
    if found.recipe.task.name != "diarize":
        task = own_name(found.recipe.task.name)
        raise ConfigError(f"--speakers {arguments.speakers} was trained to {task}, not to diarize.")
    return found


def _alias(text: str) -> tuple[str, str]:
    name, is_given, source = text.partition("=")
    if not is_given or not name or not source:
        raise ConfigError(f"--name {text}: expected ALIAS=MODEL.")
    return name, source


def _short_name(source: str) -> str:
    """What a model is called when nobody gave it a name: the end of its path."""
    return source.rstrip("/").rpartition("/")[2] or source


def _announce(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{port}          the page")
    print(f"http://{shown}:{port}/v1       OpenAI's API: client = OpenAI(base_url=…, api_key=…)", flush=True)
