"""What a run may do to a folder: nothing to one that is somebody's own, and no sound checkpoint is ever lost."""

import shutil

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.errors import CheckpointError, Preempted
from attune.run import Run
from attune.site import this_site
from attune.stages.context import Stepped
from attune.stages.train import Request, train
from attune.training import checkpoint
from attune.world import World

from tiny import write_recipe

QUICK = ("--workers=0", "--device=cpu")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("folders"), utterances=8)


def one_more_step(recipe, *changes):
    """Train until a stop signal that comes at once."""
    loaded = recipes.load(recipe, changes).recipe
    request = Request(["attune"], stop_requested=lambda: True)
    with pytest.raises(Preempted):
        for _ in train(loaded, request, this_site(0, "cpu"), World.alone()):
            pass


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(recipe, tmp_path, monkeypatch, capsys):
    project = tmp_path / "project"
    for name in ("assets/mine.txt", "task/mine.txt", "model/mine.txt", "recipe.yaml"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("mine")
    assert main(["train", str(recipe), f"run={project}", *QUICK]) == 2
    assert "has other files (assets, model, recipe.yaml, task …)" in capsys.readouterr().err
    monkeypatch.chdir(project)
    for place in (".", "/", str(tmp_path)):
        monkeypatch.setenv("HOME", str(tmp_path))
        assert main(["train", str(recipe), f"run={place}", *QUICK]) == 2
        assert "cannot be a run folder" in capsys.readouterr().err
    assert sorted(path.read_text() for path in project.rglob("*") if path.is_file()) == ["mine"] * 4


def test_a_run_begins_in_a_new_folder_an_empty_one_and_one_that_was_killed_at_once(recipe, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed/.lock").touch()
    for name in ("new", "empty", "killed"):
        one_more_step(recipe, f"run={tmp_path / name}")
        assert checkpoint.newest(tmp_path / name / "checkpoints")[0] is not None


def test_a_damaged_checkpoint_does_not_count_for_keep_last(recipe, tmp_path):
    changes = (f"run={tmp_path / 'run'}", "train.keep_last=1", "train.keep_best=null", "train.save_every=1")
    one_more_step(recipe, *changes)
    checkpoints = tmp_path / "run/checkpoints"
    damaged = checkpoints / "step-000009"
    shutil.copytree(checkpoints / "step-000001", damaged)
    (damaged / "model.safetensors").write_bytes(b"cut")
    one_more_step(recipe, *changes)
    assert checkpoint.newest(checkpoints) == (checkpoints / "step-000002", [])
    one_more_step(recipe, *changes)
    assert checkpoint.newest(checkpoints) == (checkpoints / "step-000003", [])


def test_a_lost_record_of_the_best_is_found_again_in_the_checkpoints(recipe, tmp_path):
    run = Run(tmp_path / "run")
    # A rate of zero: all scores are the same, and the first one is the best.
    words = ["train", str(recipe), f"run={run.folder}", "train.keep_last=1", "optimizer.lr=1e-9", "train.steps=4",
             "train.eval_every=1", "train.save_every=1", "data.test=[]", *QUICK]  # fmt: skip
    assert main(words) == 0
    best = run.best()
    assert best.step == 1
    for damage in (lambda path: path.unlink(), lambda path: path.write_text("")):
        damage(run.folder / "best.json")
        assert main(words) == 0
        assert run.best() == best
        assert checkpoint.damage(checkpoint.folder_of(run.checkpoints, 1)) is None


def test_a_checkpoint_whose_manifest_lists_nothing_is_damaged(recipe, tmp_path):
    one_more_step(recipe, f"run={tmp_path / 'run'}")
    folder = tmp_path / "run/checkpoints/step-000001"
    for content in ("{}", "[]", "null", '{"progress.json": 3}', "[" * 100_000):
        (folder / "manifest.json").write_text(content)
        assert checkpoint.damage(folder)


def test_damaged_records_of_a_run_are_reported_in_a_line_or_made_anew(recipe, tmp_path, capsys):
    run = Run(tmp_path / "run")
    one_more_step(recipe, f"run={run.folder}")
    shutil.copytree(run.checkpoints / "step-000001", run.checkpoints / "step-000001-copy")
    for name in ("status.json", "best.json", "scores.json"):
        (run.folder / name).write_text("")
    one_more_step(recipe, f"run={run.folder}")
    assert run.state() == "preempted"
    (run.folder / "start.json").unlink()
    assert main(["train", str(recipe), f"run={run.folder}", *QUICK]) == 2
    assert "start.json is missing or unreadable" in capsys.readouterr().err
    with pytest.raises(CheckpointError):
        run.start()


def test_a_run_whose_folder_is_moved_away_ends_with_a_line(recipe, tmp_path):
    run = tmp_path / "run"
    loaded = recipes.load(recipe, [f"run={run}", "train.eval_every=null", "train.keep_best=null"]).recipe
    events = train(loaded, Request(["attune"]), this_site(0, "cpu"), World.alone())
    with pytest.raises(CheckpointError, match=f"{run} is gone"):
        for event in events:
            if isinstance(event, Stepped) and run.exists():
                run.rename(tmp_path / "moved")
    assert not run.exists()
