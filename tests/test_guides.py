"""Guides that build a plug-in are followed to the letter: their blocks become files, and the files work."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from attune.cli import main
from attune.testing.data import DIGITS, make_corpus, speak

import small_corpora as corpora

pytestmark = pytest.mark.recipe

GUIDES = Path(__file__).parents[1] / "docs" / "guides"


def blocks(language, guide="add-a-task.md"):
    return re.findall(rf"^```{language}\n(.*?)^```$", (GUIDES / guide).read_text(), flags=re.DOTALL | re.MULTILINE)


def test_the_task_of_the_guide_is_built_checked_and_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "__init__.py").touch()
    for block in blocks("python"):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    (tmp_path / "count-words.yaml").write_text(blocks("yml")[0])
    try:
        runpy.run_path(str(tmp_path / "check.py"))
        make_corpus(tmp_path / "train", utterances=24, seed=1)
        make_corpus(tmp_path / "dev", utterances=6, seed=2)
        for line in blocks("sh")[0].strip().splitlines():
            words = line.removeprefix("PYTHONPATH=. attune ").split()
            assert main([*words, "--workers=0", "--device=cpu"]) == 0
    finally:
        for name in [name for name in sys.modules if name.startswith("my_tasks")]:
            del sys.modules[name]
    assert "words_off" in capsys.readouterr().out


def digits(folder, name, seed):
    samples = {
        f"{name}-{seed}-{word}-{take}": speak(word, seed=seed + take) for word in DIGITS[:3] for take in range(4)
    }
    rows = [{"id": id, "audio": corpora.save(folder, id, each)} for id, each in samples.items()]
    return corpora.write(folder, name, [{**row, "digit": row["id"].split("-")[2]} for row in rows])


@pytest.mark.recipe
def test_upstreams_are_compared_as_the_guide_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("train", "dev", "test")):
        digits(tmp_path, name, 100 * seed)
    (block,) = [each for each in blocks("sh", "upstreams.md") if "attune sweep" in each]
    for line in block.strip().splitlines():
        assert main([*shlex.split(line)[1:], "--workers=0", "--device=cpu"]) == 0
    assert "1  model.upstream=" in capsys.readouterr().out


def test_the_upstream_of_the_guide_is_trained_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = [each for each in blocks("python", "upstreams.md") if "class Energy" in each]
    (tmp_path / "my_upstreams").mkdir()
    (tmp_path / "my_upstreams" / "energy.py").write_text(code)
    words = [
        "train",
        "example",
        "run=run",
        "train.steps=2",
        "train.warmup=0",
        "train.eval_every=2",
        "train.save_every=2",
    ]
    options = ["--workers=0", "--device=cpu"]
    assert main([*words, "model.upstream=./my_upstreams/energy.py", *options]) == 0
    assert main(["evaluate", "run", "--on=dev", *options]) == 0


def test_a_file_that_is_no_family_says_what_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("UPSTREAM = 1\n")
    assert main(["train", "example", "model.family=./mine.py"]) == 2
    assert "It is an upstream: set model.family=ssl and model.upstream=mine.py" in capsys.readouterr().err
    assert main(["train", "example", "model.upstream=./nowhere.py"]) == 2
    assert "No file nowhere.py for the upstream" in capsys.readouterr().err
