"""How long a device waits for its batches: files here, and shards behind a slow line, with an index and without.

    python benchmarks/streaming.py [--megabytes-per-second 12] [--latency 0.02] [--step 0.3] [--steps 60]

The device is a pause of `--step` seconds for each batch. The S3 server is moto's, on loopback, behind a relay that
carries so much and no more. Prints the share of the time spent waiting for a batch.
"""

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import numpy as np
import soundfile

from attune.batches.load import Reader, load, micros_from
from attune.batches.micro_batch import LoadedMicroBatch, Position
from attune.batches.plan import Budget, plan_epoch
from attune.batches.stream import Part, Shards, StreamRules, forgetting, stream_micros
from attune.corpora import CorpusPaths, Manifest, open_manifest, prepare_split
from attune.corpora.shards import CORPUS, Options
from attune.loading.data import samples_in

BUDGET = Budget(None, 16, 1)
SECONDS, SHARDS, EACH = 4.0, 8, 60


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes-per-second", type=float, default=12.0)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--step", type=float, default=0.3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measured = measure(Path(name), arguments)
    print(json.dumps(measured, indent=1))


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Waiting shares by how the audio is read."""
    size = make_shards(folder / "shards")
    per_second = arguments.megabytes_per_second * 1e6
    found: dict[str, object] = {
        "needed_megabytes_per_second": round(size / (SHARDS * EACH) * 16 / arguments.step / 1e6, 2),
        "line_megabytes_per_second": arguments.megabytes_per_second,
        "latency_seconds": arguments.latency,
    }
    with s3_behind_a_line(folder / "shards", per_second, arguments.latency) as bucket:
        sources = {"local files": str(folder / "shards"), "S3 with an index": f"{bucket}/"}
        for what, source in sources.items():
            manifest = indexed(source, folder / what.replace(" ", "-"))
            seconds = manifest.seconds
            rows = np.arange(len(manifest))
            plan = lambda epoch, seconds=seconds, rows=rows: plan_epoch(seconds, rows, BUDGET, 1, epoch)  # noqa: E731
            micros = micros_from(Position(), plan, 0, 1, False)
            batches = load(Reader(manifest, lambda _: (1,)), micros, arguments.workers)
            found[what] = waiting(batches, arguments)
        names = tuple(f"{bucket}/{number:03d}.tar" for number in range(SHARDS))
        shards = Shards(names, samples_in, 240, 1, folder / "blocks")
        micros = stream_micros(Position(), shards, StreamRules(BUDGET, 1, 0.1, 30.0, False), Part(0, 1, False))
        batches = forgetting(load(Reader((), lambda _: (1,)), micros, arguments.workers), shards)
        found["S3 without an index"] = waiting(batches, arguments)
    return found


def waiting(batches: Iterator[LoadedMicroBatch], arguments: argparse.Namespace) -> dict[str, float]:
    """The share of the time that a device waits, once the first batch is there."""
    began = time.perf_counter()
    next(batches)
    first = time.perf_counter() - began
    waited, begin = 0.0, time.perf_counter()
    for _ in range(arguments.steps):
        time.sleep(arguments.step)
        asked = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - asked
    share = waited / (time.perf_counter() - begin)
    return {"waiting_percent": round(100 * share, 2), "first_batch_seconds": round(first, 2)}


def indexed(source: str, to: Path) -> Manifest:
    """The manifest that `attune prepare shards` makes."""
    (found,) = CORPUS.read(CorpusPaths(source, to), Options()).values()
    to.mkdir()
    list(islice(prepare_split("train", found, to, 1), None))
    return open_manifest(to / "train.jsonl", to / "index")


def make_shards(folder: Path) -> int:
    """Write the shards and return how many bytes they have."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(SHARDS):
        with tarfile.open(folder / f"{number:03d}.tar", "w") as archive:
            for index in range(EACH):
                sound = io.BytesIO()
                noise = random.normal(0, 0.05, int(SECONDS * 16000)).astype(np.float32)
                soundfile.write(sound, noise, 16000, format="FLAC")
                for name, content in {"flac": sound.getvalue(), "txt": b"some words"}.items():
                    member = tarfile.TarInfo(f"{number}-{index}.{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return sum(path.stat().st_size for path in folder.glob("*.tar"))


@contextmanager
def s3_behind_a_line(folder: Path, per_second: float, latency: float) -> Iterator[str]:
    """A bucket with the folder's files, on a server that is only reached through a slow relay."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
        wait_for(port)
        import boto3

        direct = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
        direct.create_bucket(Bucket="speech")
        for path in folder.glob("*.tar"):
            direct.upload_file(str(path), "speech", path.name)
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{relay(port, per_second, latency)}"
        yield "s3://speech"
    finally:
        server.terminate()
        server.wait()


def relay(port: int, per_second: float, latency: float) -> int:
    """Carry bytes to and from a port: answers no faster than `per_second` in all, each request `latency` late."""
    line, free_at = threading.Lock(), [0.0]
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def pump(source: socket.socket, target: socket.socket, slow: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if slow:
                    with line:
                        free_at[0] = max(free_at[0], time.monotonic()) + len(data) / per_second
                        until = free_at[0]
                    time.sleep(max(0.0, until - time.monotonic()))
                else:
                    time.sleep(latency)
                target.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, target):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=pump, args=(far, near, True), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the S3 server did not start")


if __name__ == "__main__":
    main()
