"""Many clients at once against one at a time: are the answers equal, how many a second, does memory stay flat?

    .venv/bin/python benchmarks/serve.py [MODEL] [--clients 64] [--seconds 60] [--audio FOLDER] [--precision int8]
    .venv/bin/python benchmarks/serve.py --tiny 10000

Starts `attune serve` on a free port, asks for each recording once alone, then lets the clients ask for random ones.
With `--tiny`, one client after the other sends that many tiny requests, nearly all of them wrong: has each the right
status, do memory, threads and open files stay as they were, is a recording still transcribed?
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

import attune

TRANSCRIPTIONS = "/v1/audio/transcriptions"
DEMO = Path(attune.__file__).parent / "demo"


def main() -> None:
    """Run both and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(DEMO / "model"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--audio", type=Path, default=DEMO / "audio")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--tiny", type=int)
    arguments = parser.parse_args()
    clips = {path: path.read_bytes() for path in sorted(arguments.audio.glob("*.opus"))[:100]}
    command = [sys.executable, "-m", "attune", "serve", arguments.model, "--port", "0", "--max-requests", "256"]
    command += ["--precision", arguments.precision]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = next(line.split()[0] for line in server.stdout or () if line.startswith("http"))
        found = (
            measure_tiny(address, arguments.tiny, next(iter(clips.values())), server.pid)
            if arguments.tiny
            else asyncio.run(measure(address, clips, arguments, server.pid))
        )
        print(json.dumps(found, indent=2))
    finally:
        server.terminate()
        server.wait(70)


async def measure(address: str, clips: dict[Path, bytes], arguments: argparse.Namespace, pid: int) -> dict[str, object]:
    """The figures."""
    limits = httpx.Limits(max_connections=arguments.clients)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        began = time.perf_counter()
        expected = {path: (await ask(client, path.name, content))[1] for path, content in clips.items()}
        alone = len(clips) / (time.perf_counter() - began)
        statuses: Counter[int] = Counter()
        memory = [resident(pid)]
        until, began = time.perf_counter() + arguments.seconds, time.perf_counter()
        wrong = 0

        async def one_client(number: int) -> None:
            nonlocal wrong
            generator = random.Random(number)
            while time.perf_counter() < until:
                path = generator.choice(list(clips))
                status, text = await ask(client, path.name, clips[path])
                statuses[status] += 1
                wrong += status == 200 and text != expected[path]

        async def watch() -> None:
            while time.perf_counter() < until:
                await asyncio.sleep(arguments.seconds / 10)
                memory.append(resident(pid))

        await asyncio.gather(watch(), *(one_client(number) for number in range(arguments.clients)))
        together = statuses[200] / (time.perf_counter() - began)
        return {
            "one at a time, per second": round(alone, 1),
            f"{arguments.clients} clients, per second": round(together, 1),
            "statuses": dict(statuses),
            "answers that differ": wrong,
            "resident MiB": memory,
        }


def measure_tiny(address: str, count: int, clip: bytes, pid: int) -> dict[str, object]:
    """The figures of tiny requests."""
    kinds = tiny_requests()
    wrong: Counter[str] = Counter()
    watched: list[dict[str, int]] = []
    began = time.perf_counter()
    with httpx.Client(base_url=address, timeout=60) as client:
        for number in range(count):
            if number % max(count // 5, 1) == 0:
                watched.append(used(pid))
            name, status, request = kinds[number % len(kinds)]
            found = client.request(**request).status_code
            wrong[f"{name}: {found} instead of {status}"] += found != status
        seconds = time.perf_counter() - began
        after = client.post(TRANSCRIPTIONS, data={"model": "m"}, files={"file": ("a.opus", clip)}).status_code
    return {
        "requests": count, "per second": round(count / seconds), "wrong statuses": dict(+wrong),
        "used, of the server": [*watched, used(pid)], "a recording after them": after,
    }  # fmt: skip


def tiny_requests() -> list[tuple[str, int, dict[str, Any]]]:
    """What is sent, and the status that it should get."""
    post: dict[str, Any] = {"method": "POST", "url": TRANSCRIPTIONS}
    file = {"file": ("a.wav", b"x")}
    broken = {"content": b"--x\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}
    return [
        ("no form", 400, {**post, "content": b"x"}),
        ("an empty body", 400, post),
        ("JSON", 400, {**post, "json": {}}),
        ("a cut form", 400, {**post, **broken}),
        ("a form without a file", 400, {**post, "data": {"model": "m"}, "files": {"prompt": (None, "x")}}),
        ("a file that is no audio", 415, {**post, "data": {"model": "m"}, "files": file}),
        ("an unknown format", 422, {**post, "data": {"model": "m", "response_format": "x"}, "files": file}),
        ("an unknown address", 404, {"method": "GET", "url": "/v1/x"}),
        ("a wrong method", 405, {"method": "DELETE", "url": TRANSCRIPTIONS}),
        ("health", 200, {"method": "GET", "url": "/health"}),
    ]


async def ask(client: httpx.AsyncClient, name: str, content: bytes) -> tuple[int, str]:
    """The status and the text."""
    answer = await client.post(TRANSCRIPTIONS, data={"model": "m"}, files={"file": (name, content)})
    return answer.status_code, answer.json().get("text", "")


def resident(pid: int) -> int:
    """MiB of a process."""
    line = next(each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def used(pid: int) -> dict[str, int]:
    """What a process holds."""
    process = Path(f"/proc/{pid}")
    counts = {"threads": len(list((process / "task").iterdir())), "files": len(list((process / "fd").iterdir()))}
    return {"resident MiB": resident(pid), **counts}


if __name__ == "__main__":
    main()
