"""A local page of runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from shlex import join

from attune.cli._terminal import port

HELP = "show runs in a browser: curves while they train, reports, comparisons"
EXAMPLE = "attune ui runs"
PORT = 6420


def add_arguments(parser: ArgumentParser) -> None:
    """Take the folder, and where to listen."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="folder of runs (default: runs)")
    parser.add_argument("--port", type=port, default=PORT, help=f"port (default {PORT}; 0: any that is free)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: this machine only); other addresses need a token",
    )


def run(arguments: Namespace) -> int:
    """Serve until Ctrl-C."""
    from attune.analysis.ui import RunsServer, listen, make_token
    from attune.errors import DataError
    from attune.site import this_site

    if not arguments.folder.is_dir():
        raise DataError(f"{arguments.folder} does not exist. Give the folder that has the runs: attune ui FOLDER")
    token = make_token(arguments.host)
    server = RunsServer(arguments.folder.absolute(), this_site(), join(["attune", *arguments.words]), token)
    with listen(server, arguments.host, arguments.port) as opened:
        host, number = opened.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        print(f"http://{shown}:{number}/{f'?token={token}' if token else ''}", flush=True)
        print("Ctrl-C stops.", flush=True)
        opened.serve_forever()
    return 0
