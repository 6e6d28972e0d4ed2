"""The GPU benchmarks run on the CPU, as small as can be, so that they work when there is a GPU."""

import json
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from attune.testing import make_corpus

from processes import FORK
from tiny_whisper import write_whisper

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks"

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module", autouse=True)
def peers():
    """Loaded once, before forking."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import Seq2SeqTrainer, WhisperForConditionalGeneration, WhisperProcessor  # noqa: F401


def run(script: str, *words: object, code: int = 0) -> None:
    """A benchmark in a process of its own, which has torch already."""
    process = FORK.Process(target=_run, args=(script, list(map(str, words))))
    process.start()
    process.join(120)
    assert process.exitcode == code, script


def _run(script: str, words: list[str]) -> None:
    warnings.resetwarnings()
    sys.path.insert(0, str(SCRIPTS))
    sys.argv = [script, *words]
    runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")


def figures(path: Path) -> dict:
    return json.loads(path.read_text())


def write_an4(folder: Path, count: int = 6) -> Path:
    """A corpus in the layout of AN4's folder."""
    manifest = make_corpus(folder, utterances=count)
    rows = manifest.read_text().splitlines(keepends=True)
    (folder / "train.jsonl").write_text("".join(rows))
    (folder / "dev.jsonl").write_text("".join(rows[:2]))
    return folder


def write_published_whisper(folder: Path) -> Path:
    """A tiny Whisper with all that transformers publishes beside one."""
    from transformers import WhisperFeatureExtractor

    weights = write_whisper(folder)
    WhisperFeatureExtractor().save_pretrained(weights)
    (weights / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "WhisperTokenizer", "pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})
    )
    return weights


def test_whisper_beside_its_peer(tmp_path):
    weights, an4 = write_published_whisper(tmp_path / "weights"), write_an4(tmp_path / "an4")
    parts = ("--parts", "an4,peer,speed,greedy,exact")
    run("whisper_gpu", weights, an4, tmp_path / "out", "--tiny", "--scratch", tmp_path / "scratch", *parts)
    found = figures(tmp_path / "out/results.json")
    assert {*found} >= {"an4", "peer", "speed", "greedy", "exact"}
    assert len(found["an4"]["dev_wer"]) == 2 and found["peer"]["dev_wer"]
    assert found["exact"]["strict runs are equal"]
    assert not (tmp_path / "scratch").exists()


def test_whisper_large_beside_its_peers(tmp_path):
    run("whisper_large", tmp_path, "--tiny", "--scratch", tmp_path / "scratch")
    found = figures(tmp_path / "large.json")
    assert [each["clips_per_second"] > 0 for name, each in found.items() if "batch" in name] == [True] * 4


def test_transducers(tmp_path):
    run("transducer_loss", tmp_path / "loss", "--tiny")
    run("transducer_batch", tmp_path / "batch", "--tiny")
    run("transducer_decode", tmp_path / "decode", "--tiny")
    distances = figures(tmp_path / "loss/results.json")["distances"]
    assert all(each["same bits"] and each["loss"] < 1e-2 for each in distances.values())
    assert figures(tmp_path / "batch/transducer_batch.json")["lean"]["largest batch"] == 2
    assert not any(figures(tmp_path / "decode/transducer_decode.json")["differing_utterances_fp32"].values())


def test_beams(tmp_path):
    run("beams", tmp_path, "--tiny")
    found = figures(tmp_path / "beams.json")
    assert [found[name]["same hypotheses"] for name in found if "aed" in name or name == "whisper"] == ["2 of 2"] * 2
    assert {*found} >= {"CTC, 32 tokens", "transducer"}


def test_upstreams(tmp_path):
    sizes = ("--size", "tiny", "--clips", "8", "--batch", "4", "--workers", "0")
    run("upstreams", tmp_path, *sizes)
    assert len(figures(tmp_path / "upstreams.json")["clips_per_second"]) == 10


def test_the_matrix_goes_on_with_what_is_missing(tmp_path):
    words = (tmp_path, "--device", "cpu", "--only", "ssl, classify: bf16 decoding")
    run("gpu_matrix", *words, "--seconds", 0, code=75)
    run("gpu_matrix", *words)
    (only,) = figures(tmp_path / "matrix.json")
    assert only["code"] == 0
    written = (tmp_path / "matrix.json").stat().st_mtime_ns
    run("gpu_matrix", *words)
    assert (tmp_path / "matrix.json").stat().st_mtime_ns == written


def driver(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "gpu.py"), "--to", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_driver_cuts_off_goes_on_and_sums_up(tmp_path):
    assert "no such benchmark" in driver(tmp_path, "--only", "speed").stderr
    planned = driver(tmp_path, "--plan", "--whisper", "tiny.en", "--an4", "an4").stdout
    assert "3 calls of 9.5 minutes" in planned
    assert "left for another call" in driver(tmp_path, "--tiny", "--only", "beams", "--minutes", "0.5").stdout
    done = driver(tmp_path, "--tiny", "--only", "beams")
    assert (done.returncode, done.stdout.count("beams: done")) == (0, 1), done.stdout
    again = driver(tmp_path, "--tiny", "--only", "beams")
    assert "1 of 1 done" in again.stdout and "at most" not in again.stdout
    assert '"same hypotheses": "2 of 2"' in (tmp_path / "summary.md").read_text()
