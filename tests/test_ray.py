"""The same recipe on a Ray cluster: the same bits, through worker deaths, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

from attune.files import sha256
from attune.launch.jobs import Job, submit
from attune.processes import RUN_ID_VARIABLE, find_run_processes
from attune.run import Run

from cluster import ENVIRONMENT, head, node
from processes import attune, start, wait, wait_for_step
from servers.s3 import KEY, SECRET, moto
from tiny import EPOCH, write_recipe

pytestmark = [pytest.mark.recipe, pytest.mark.ray]

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # Ray's own
STRICT = ["train.strict=true", "train.save_every=1", "train.keep_last=3", "optimizer.lr=3e-3", EPOCH]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("ray"))


@pytest.fixture(scope="module")
def store():
    """Variables with which a process reaches an S3 store with an empty bucket, speech."""
    with moto() as url:
        access = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
        access |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": url}
        client(access).create_bucket(Bucket="speech")
        yield access


def client(access):
    import boto3

    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=access["AWS_ENDPOINT_URL"], **keys)


def objects(access, prefix):
    found = client(access).list_objects_v2(Bucket="speech", Prefix=prefix).get("Contents", [])
    return sorted(each["Key"] for each in found)


@pytest.fixture(scope="module")
def cluster(store):
    own = {**ENVIRONMENT, **store}
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, head(Path(folder), own=own) as started:
        yield started


def command(recipe, run, *more, devices="2"):
    words = ["train", str(recipe), f"run={run}", *STRICT, *more, "--launch=ray", f"--devices={devices}", "--workers=0"]
    return [sys.executable, "-m", "attune", *words]


@pytest.fixture(scope="module")
def quiet(recipe, tmp_path_factory):
    """The same run by one process, and by two ranks, in peace."""
    folders = [tmp_path_factory.mktemp("quiet") / str(ranks) for ranks in (1, 2)]
    for ranks, folder in zip((1, 2), folders, strict=True):
        words = ["train", str(recipe), f"run={folder}", *STRICT, "--workers=0"]
        assert wait(start(words, ranks)) == [0] * ranks
    assert ending(folders[0]) == ending(folders[1])
    return ending(folders[0])


def ending(run, steps=12):
    """The SHA-256 sums of weights, optimizer, position and predictions."""
    last = run / f"checkpoints/step-{steps:06d}"
    files = [last / name for name in ("model.safetensors", "optimizer.safetensors", "progress.json")]
    return [sha256(path) for path in [*files, run / "predictions/test.jsonl"]]


def test_a_worker_killed_after_a_report_is_replaced_and_the_run_ends_in_the_same_bits(recipe, cluster, quiet, tmp_path):
    run = tmp_path / "run"
    words = [*command(recipe, run), f"--address={cluster.address}", "--restarts=1"]
    with subprocess.Popen(words, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL) as driver:
        wait_for_step(run, 6, 300)  # where the dev scores are reported
        os.kill(int(json.loads((run / "status.json").read_text())["pid"]), signal.SIGKILL)
        assert driver.wait(300) == 0
    resumed = [line for line in (run / "log.jsonl").read_text().splitlines() if '"resumed"' in line]
    assert len(resumed) == 1 and json.loads(resumed[0])["step"] >= 6  # attune's own newest, whatever Ray had heard of
    assert ending(run) == quiet
    assert Run(run).state() == "done"


@pytest.fixture(scope="module")
def killed_drivers():
    """Marks of launches whose driver was killed, and when. Ray's own agents take a minute now and then to notice: other
    tests run meanwhile, and at the end nothing at all may be left."""
    drivers: dict[str, float] = {}
    yield drivers
    for mark, when in drivers.items():
        while left := list(find_run_processes(mark)):
            assert time.monotonic() < when + 90, left
            time.sleep(0.5)


def test_a_driver_killed_at_once_leaves_nothing_and_another_launcher_goes_on(recipe, quiet, killed_drivers, tmp_path):
    run = tmp_path / "run"
    environment = {**os.environ, **ENVIRONMENT, RUN_ID_VARIABLE: f"driver-{os.getpid()}"}
    words = command(recipe, run, "train.eval_every=3")
    with subprocess.Popen([*words, "--address=local"], env=environment, stdout=subprocess.DEVNULL) as driver:
        wait_for_step(run, 2, 300)
        driver.send_signal(signal.SIGKILL)
    killed = killed_drivers[environment[RUN_ID_VARIABLE]] = time.monotonic()
    while left := [
        found for found in find_run_processes(environment[RUN_ID_VARIABLE]) if not found.command.startswith(AGENTS)
    ]:
        assert time.monotonic() < killed + 60, left
        time.sleep(0.5)
    assert wait(start([*words[3:-3], "--workers=0"], 2)) == [0, 0]
    assert ending(run)[:2] == quiet[:2]


def test_with_as_many_workers_as_there_are_sigterm_to_the_driver_saves_and_exits_75(recipe, cluster, tmp_path):
    run = tmp_path / "run"
    words = [*command(recipe, run, "train.steps=100000", devices="1-2"), f"--address={cluster.address}", "--restarts=3"]
    with subprocess.Popen(words, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL) as driver:
        wait_for_step(run, 3, 300)
        driver.send_signal(signal.SIGTERM)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(60) == 75
    assert Run(run).state() == "preempted"


def test_a_job_with_its_run_in_s3_is_followed_and_ends_as_its_command_ends(recipe, cluster, store, tmp_path):
    run = "s3://speech/runs/job"
    done = attune(
        *("submit", recipe, f"run={run}", "train.steps=2", "train.warmup=0", "data.test=[]", "train.eval_every=2"),
        *("--folder", recipe.parent, "--address", cluster.jobs, "--devices", 1),
        *("--env", "OMP_NUM_THREADS=1", "--env", f"ATTUNE_CACHE={tmp_path / 'cache'}"),
        **{**ENVIRONMENT, **store},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{run}/model has the model of step 2" in done.stdout
    assert "runs/job/model/model.safetensors" in objects(store, "runs/job/model/")
    said: list[str] = []
    for code, expected in ((75, 75), (9, 1)):
        words = [sys.executable, "-c", f"print('on the cluster'); raise SystemExit({code})"]
        assert submit(Job(words, recipe.parent), cluster.jobs, said.append).code == expected
    assert "".join(said).count("\non the cluster") == 2


def test_a_relative_run_cannot_be_submitted(recipe, cluster):
    done = attune("submit", recipe, "run=runs/x", "--folder", recipe.parent, "--address", cluster.jobs)
    assert done.returncode == 2 and "an absolute path that all nodes share" in done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray in Ray, which a user does not see
def test_files_are_transcribed_by_workers_and_a_second_time_only_what_is_missing(recipe, cluster, quiet, tmp_path):
    run, out = tmp_path / "run", tmp_path / "out.jsonl"
    assert wait(start(["train", str(recipe), f"run={run}", "train.steps=3", "--workers=0"])) == [0]
    files = sorted(map(str, recipe.parent.glob("dev/**/*.wav")))
    words = ["transcribe", run, *files, "--out", out, "--launch", "ray", "--address", cluster.address]
    done = attune(*words, **ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == files
    plain = attune("transcribe", run, *files)
    assert {line["id"]: line["text"] for line in map(json.loads, lines)} == dict(
        line.split("\t") for line in plain.stdout.splitlines()
    )
    out.write_text("".join(f"{line}\n" for line in lines[:-2]) + lines[-2][:9])  # two lost, one of them in mid-line
    again = attune(*words, **ENVIRONMENT)
    assert len(again.stdout.splitlines()) == 2 and again.returncode == 0
    assert sorted(out.read_text().splitlines()) == sorted(lines)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # as above
def test_shards_are_decoded_by_workers_and_a_second_time_only_what_is_missing(
    recipe, cluster, store, tmp_path, monkeypatch
):
    monkeypatch.setattr("attune.stages.eval_shards.UTTERANCES", 4)
    run, variables = tmp_path / "run", {**ENVIRONMENT, **store}
    assert wait(start(["train", str(recipe), f"run={run}", "train.steps=3", "--workers=0"])) == [0]
    here = json.loads(attune("evaluate", run, "--on", "dev", "--json").stdout)
    predicted = (run / "predictions/dev.jsonl").read_bytes()
    (run / "predictions/dev.jsonl").unlink()
    words = ["evaluate", run, "--on", "dev", "--json", "--shards", "s3://speech/decoded/"]
    done = attune(*words, "--launch", "ray", "--address", cluster.address, "--devices", "1-2", **variables)
    assert done.returncode == 0 and "2 shards in s3://speech/decoded/, 2 of them new" in done.stderr, done.stderr
    assert json.loads(done.stdout)["scores"] == here["scores"]
    assert (run / "predictions/dev.jsonl").read_bytes() == predicted
    first, _ = objects(store, "decoded/")
    client(store).delete_object(Bucket="speech", Key=first)
    again = attune(*words, **variables)
    assert "2 shards in s3://speech/decoded/, 1 of them new" in again.stderr and again.returncode == 0
    assert json.loads(again.stdout)["scores"] == here["scores"]


def test_a_run_directory_that_a_node_cannot_see_is_refused(recipe, cluster, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    blindfold = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {hidden} && exec "$0" "$@"']
    if subprocess.run([*blindfold, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount anything in a namespace of its own")
    words = [*command(recipe, hidden / "run"), f"--address={cluster.address}"]
    with node(cluster, blindfold):
        done = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "is not visible on 1 of the cluster's 2 nodes" in done.stderr, done.stderr


def test_programs_get_json_from_the_driver_alone_and_the_exit_code_of_the_run(recipe, cluster, tmp_path):
    rows = [json.loads(row) for row in (recipe.parent / "dev/manifest.jsonl").read_text().splitlines()[:2]]
    (tmp_path / "bad.wav").write_bytes((recipe.parent / "dev/audio/00000.wav").read_bytes()[:3000])
    audio = ["bad.wav", str(recipe.parent / "dev/audio/00001.wav")]
    lines = [json.dumps({**row, "audio": path}) for row, path in zip(rows, audio, strict=True)]
    (tmp_path / "m.jsonl").write_text("\n".join(lines) + "\n")
    settings = ["train.steps=2", "train.warmup=1", "data.bad_rows=drop", f"data.test=[{tmp_path / 'm.jsonl'}]"]
    words = command(recipe, tmp_path / "run", *settings, f"--address={cluster.address}", "--json", devices="1")
    done = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["scores"]["test"]["counts"]["num_absent_sents"] == 1, done.stderr
    assert done.returncode == 1 and Run(tmp_path / "run").state() == "done"


def test_the_points_of_a_sweep_are_trials_of_ray_tune(recipe, cluster, tmp_path):
    quick = ["train.steps=2", "train.warmup=0", "train.eval_every=null", "train.keep_best=null", "--workers=0"]
    words = ["sweep", str(recipe), "seed=1,2", *quick, f"--to={tmp_path}", "--launch=ray", "--devices=2", "--json"]
    words = [sys.executable, "-m", "attune", *words, f"--address={cluster.address}"]
    done = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {each["point"] for each in json.loads(done.stdout)} == {"seed=1", "seed=2"}
    assert {Run(folder).state() for folder in tmp_path.glob("seed=*")} == {"done"}
    assert "2/2 seed=" in done.stderr and len(list((tmp_path / "ray-tune").glob("*seed=*"))) == 2
