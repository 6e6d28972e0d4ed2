"""A server of `attune.serve` on a free port of this machine, in a thread."""

import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import uvicorn

import attune
from attune.serve.app import make_app
from attune.serve.settings import ServerSettings

DEMO = Path(attune.__file__).parent / "demo"


@contextmanager
def running(models, settings=None, speakers=None):
    """The address of a server with these models, by name."""
    config = uvicorn.Config(make_app(models, settings or ServerSettings(), speakers), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def demo_clips(split="test"):
    """The recordings of the demo, with their rows."""
    rows = [json.loads(line) for line in (DEMO / f"{split}.jsonl").read_text().splitlines()]
    return [(DEMO / row["audio"], row) for row in rows]
