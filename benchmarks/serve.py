"""Many clients at once against one at a time: are the answers equal, how many a second, does memory stay flat?

    .venv/bin/python benchmarks/serve.py [MODEL] [--clients 64] [--seconds 60] [--audio FOLDER]

Starts `attune serve` on a free port, asks for each recording once alone, then lets the clients ask for random ones.
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

import httpx

import attune

DEMO = Path(attune.__file__).parent / "demo"


def main() -> None:
    """Run both and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(DEMO / "model"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--audio", type=Path, default=DEMO / "audio")
    arguments = parser.parse_args()
    clips = {path: path.read_bytes() for path in sorted(arguments.audio.glob("*.opus"))[:100]}
    command = [sys.executable, "-m", "attune", "serve", arguments.model, "--port", "0", "--max-requests", "256"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = next(line.split()[0] for line in server.stdout or () if line.startswith("http"))
        print(json.dumps(asyncio.run(measure(address, clips, arguments, server.pid)), indent=2))
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


async def ask(client: httpx.AsyncClient, name: str, content: bytes) -> tuple[int, str]:
    """The status and the text."""
    answer = await client.post("/v1/audio/transcriptions", data={"model": "m"}, files={"file": (name, content)})
    return answer.status_code, answer.json().get("text", "")


def resident(pid: int) -> int:
    """MiB of a process."""
    line = next(each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    main()
