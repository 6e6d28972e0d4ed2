"""Whisper on a Ray cluster whose nodes share nothing but S3: through every fault, the bits of a quiet run."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("boto3")

import numpy as np
import soundfile

from attune.audio.decode import read_audio
from attune.files import sha256
from attune.run_store import StoredRun
from attune.sources import ObjectStore
from attune.training import checkpoint

from cluster import ENVIRONMENT, Head, has_worker, head, kill_node, node
from processes import attune
from servers.s3 import KEY, SECRET, Between, moto, proxy, rclone
from tiny_whisper import MULTILINGUAL, real_data, write_whisper

MODEL = os.environ.get("ATTUNE_TEST_WHISPER")  # a folder with real weights

pytestmark = [pytest.mark.recipe, pytest.mark.ray, pytest.mark.timeout(3600 if MODEL else 1800)]

RECIPE = """\
run: {run}
seed: 5
data: {{train: [s3://speech/cv/train.jsonl], dev: [s3://speech/cv/dev.jsonl], max_seconds: 20}}
task: {{name: transcribe, language: en}}
model: {{family: whisper, weights: s3://speech/whisper/, window: trimmed}}
batches: {{micro_seconds: {seconds}, micros_per_step: 4}}
optimizer: {{lr: 1e-5}}
train:
  {{steps: {steps}, warmup: 2, save_every: {save}, keep_last: 2, eval_every: {every}, keep_best: dev.wer, strict: true}}
"""
# All faults take minutes; without them a worker is lost and S3 is away for a moment.
HAS_ALL_FAULTS = "ATTUNE_TEST_ALL_FAULTS" in os.environ
MARK = "ATTUNE_SCENARIO"  # in the environment of everything that is started here


@dataclass
class Scene:
    """The machines, and what happened on them."""

    server: str  # without a relay
    folder: Path
    steps: int
    relays: list[Between] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)  # seconds until there was a newer step, by fault
    home: list[dict[str, str]] = field(default_factory=list)

    def store(self) -> ObjectStore:
        return ObjectStore("s3://speech/run", 300.0, lambda _: None)

    def newest(self) -> int:
        names = (name for name in self.store().list("checkpoints/") if name.endswith("/manifest.json"))
        return max((int(name.split("/")[1].removeprefix("step-")) for name in names), default=0)

    def wait_for(self, step: int, seconds: float = 900) -> float:
        began = time.monotonic()
        while self.newest() < step:
            assert time.monotonic() - began < seconds, f"step {step} is not there after {seconds} s"
            time.sleep(0.1)
        return time.monotonic() - began

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Wait for a few steps, have something happen, and measure until the run is further than it was."""
        self.wait_for(min(self.newest() + 2, self.steps))
        before, began = self.newest(), time.monotonic()
        yield
        self.wait_for(min(before + 2, self.steps))
        self.lost[name] = round(time.monotonic() - began, 1)
        print(f"{name}: step {before}, further after {self.lost[name]} s", flush=True)


def write_common_voice(folder: Path, utterances: int) -> None:
    """Common Voice's folder, of real speech where there is some: clips as MP3, tables with sentences."""
    sources = sorted(real_data("sentences").rglob("*.wav"))[:utterances] if utterances > 12 else []
    (folder / "clips").mkdir(parents=True)
    rows = []
    for number in range(utterances):
        noise = np.random.default_rng(number).normal(0, 0.1, 16_000 * (1 + number % 3)).astype(np.float32)
        audio = read_audio(sources[number]) if number < len(sources) else noise
        soundfile.write(folder / f"clips/cv_{number}.mp3", audio, 16_000, format="MP3")
        rows.append(f"speaker{number}\tcv_{number}.mp3\tsentence number {number}")
    for name, part in {"train": rows[:-3], "dev": rows[-3:], "test": rows[-3:]}.items():
        (folder / f"{name}.tsv").write_text("\n".join(["client_id\tpath\tsentence", *part]) + "\n")


def upload(folder: Path, below: str) -> int:
    """The bytes that were uploaded."""
    store, size = ObjectStore(f"s3://speech/{below}", 30.0, lambda _: None), 0
    for path in folder.rglob("*"):
        if path.is_file():
            store.upload(path.relative_to(folder).as_posix(), path)
            size += path.stat().st_size
    return size


def prepared(folder: Path, utterances: int) -> Path:
    """Manifests beside their clips, as they are put into a bucket."""
    write_common_voice(folder / "cv", utterances)
    done = attune("prepare", "common_voice", "--from", folder / "cv", "--to", folder / "manifests")
    assert done.returncode == 0, done.stderr
    for name in ("train", "dev"):
        (manifest,) = (folder / "manifests").rglob(f"{name}.jsonl")
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        lines = [json.dumps({**row, "audio": f"clips/{Path(row['audio']).name}"}) for row in rows]
        (folder / "cv" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        (folder / f"cv/{name}.tsv").unlink()
    (folder / "cv/test.tsv").unlink()
    return folder / "cv"


def credentials(url: str) -> dict[str, str]:
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    return settings | {
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_ENDPOINT_URL": url,
        MARK: str(os.getpid()),
    }


@contextmanager
def machines(scene: Scene, count: int = 3) -> Iterator[tuple[Head, list]]:
    """Ray nodes with homes, caches and relays of their own."""
    with ExitStack() as held:
        for number in range(count):
            relay, home = Between(), scene.folder / f"node{number}"
            home.mkdir()
            url = held.enter_context(proxy(scene.server, relay))
            scene.relays.append(relay)
            scene.home.append({**credentials(url), "HOME": str(home), "ATTUNE_CACHE": str(home / "cache")})
        temporary = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="ray-")))
        first = held.enter_context(head(temporary, cpus=1, own=scene.home[0]))
        others = [held.enter_context(node(first, own=own, count=2 + at)) for at, own in enumerate(scene.home[1:])]
        yield first, others


def driver(scene: Scene, cluster: Head, recipe: Path) -> subprocess.Popen:
    words = ["train", str(recipe), "--launch=ray", f"--address={cluster.address}", "--devices=2-3", "--restarts=20"]
    words += ["--workers=0", "--timeout=300"]
    environment = {**os.environ, **ENVIRONMENT, **scene.home[0]}
    with (scene.folder / "driver.log").open("a") as log:
        return subprocess.Popen([sys.executable, "-m", "attune", *words], env=environment, stdout=log, stderr=log)


def act(scene: Scene, recipe: Path) -> None:
    """A worker, a node, S3 and the driver are lost, one after the other."""
    with machines(scene) as (cluster, others), ExitStack() as held:
        running = driver(scene, cluster, recipe)
        try:
            scene.wait_for(1)
            with scene.fault("worker killed"):
                os.kill(json.loads(scene.store().read("status.json") or b"{}")["pid"], signal.SIGKILL)
            if HAS_ALL_FAULTS:
                with scene.fault("node killed"):
                    gone = next(number for number, each in enumerate(others) if has_worker(each))
                    kill_node(others[gone])
                held.enter_context(node(cluster, own=scene.home[1 + gone], count=3))
            with scene.fault("S3 away"):
                for relay in scene.relays:
                    relay.is_away = True
                time.sleep(20 if HAS_ALL_FAULTS else 2)
                for relay in scene.relays:
                    relay.is_away = False
            if HAS_ALL_FAULTS:
                with scene.fault("driver killed"):
                    running.kill()
                    running.wait()
                    running = driver(scene, cluster, recipe)
            assert running.wait(1800) == 0, (scene.folder / "driver.log").read_text()[-3000:]
        finally:
            running.kill()
            running.wait()


def orphans() -> list[str]:
    """Processes that were started for the scene and are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={os.getpid()}\0".encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", [os.environ.get("ATTUNE_TEST_STORE", "rclone")])
def test_nodes_that_share_nothing_but_s3_end_in_the_bits_of_a_quiet_run(kind, tmp_path, monkeypatch):
    # Real weights are slower to train, and to save: 460 MB a checkpoint.
    steps, utterances = 24 if MODEL else 60 if HAS_ALL_FAULTS else 12, 40 if MODEL else 12
    size_of_step = {"seconds": 8 if MODEL else 12, "save": 2 if MODEL else 1}
    buckets = tmp_path / "buckets"
    (buckets / "speech").mkdir(parents=True)
    with moto() if kind == "moto" else rclone(buckets) as url:
        for name, value in credentials(url).items():
            if name != MARK:
                monkeypatch.setenv(name, value)
        if kind == "moto":
            import boto3

            boto3.client("s3").create_bucket(Bucket="speech")
        corpus = prepared(tmp_path, utterances)
        size = upload(corpus, "cv")
        upload(Path(MODEL) if MODEL else write_whisper(tmp_path / "whisper", MULTILINGUAL), "whisper")
        recipe, quiet = tmp_path / "recipe.yaml", tmp_path / "quiet"
        recipe.write_text(RECIPE.format(run="s3://speech/run", steps=steps, every=steps // 2, **size_of_step))
        monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
        done = attune("train", recipe, f"run={quiet}", "--workers=0", seconds=1800)
        assert done.returncode == 0, done.stderr
        scene = Scene(url, tmp_path, steps)
        act(scene, recipe)
        found = StoredRun(scene.store(), tmp_path / "found")
        found.restore_all()
        last = f"checkpoints/step-{steps:06d}"
        sums = [[sha256(folder / last / name) for name in checkpoint.FILES] for folder in (quiet, tmp_path / "found")]
        assert sums[0] == sums[1]
        assert not any(map(checkpoint.damage, (tmp_path / "found/checkpoints").iterdir()))
        bytes_of = [sum(n for path, n in relay.fetched.items() if "/cv/" in path) for relay in scene.relays]
        print(f"seconds lost: {scene.lost}; corpus {size} bytes, fetched by node {bytes_of}")
        assert all(fetched <= 1.05 * size for fetched in bytes_of), (bytes_of, size)
        deadline = time.monotonic() + 60
        while orphans():
            assert time.monotonic() < deadline, orphans()
            time.sleep(0.5)
