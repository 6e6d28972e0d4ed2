import json
import resource
import signal
from dataclasses import replace

import pytest
import torch

from attune.batches.micro_batch import Position
from attune.errors import CheckpointError
from attune.files import checksum, sha256
from attune.training import checkpoint
from attune.training.checkpoint import Checkpoint
from attune.training.optimizer import load_state_by_name, make_optimizer, state_by_name
from attune.training.precision import LossScale
from attune.training.progress import TrainingProgress


def made(step: int) -> Checkpoint:
    torch.manual_seed(step)
    progress = TrainingProgress(Position(step, 1, 2), LossScale(512.0, 7), skipped=3, skipped_in_a_row=1)
    return Checkpoint({"weight": torch.randn(100, 10)}, {"weight/exp_avg": torch.randn(100, 10)}, progress)


def saved(folder, *steps):
    return [checkpoint.save(folder, made(step)) for step in steps]


def test_what_is_saved_is_what_is_loaded(tmp_path):
    (folder,) = saved(tmp_path, 4)
    back = checkpoint.load(folder)
    assert back.progress == made(4).progress
    assert torch.equal(back.model["weight"], made(4).model["weight"])
    assert torch.equal(back.optimizer["weight/exp_avg"], made(4).optimizer["weight/exp_avg"])


def test_the_newest_is_found_by_number_not_by_spelling(tmp_path):
    saved(tmp_path, 999_999, 1_000_000)
    assert checkpoint.newest(tmp_path)[0].name == "step-1000000"


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [truncate, flip, lambda path: path.unlink()], ids=["truncated", "flipped", "missing"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "progress.json", "manifest.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path, harm, name):
    older, newer = saved(tmp_path, 1, 2)
    harm(newer / name)
    found, damaged = checkpoint.newest(tmp_path)
    assert found == older
    assert [item.folder for item in damaged] == [newer]
    assert name in damaged[0].reason or name == "manifest.json"
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(newer)


def test_a_checkpoint_on_a_bad_sector_is_passed_over_like_any_damaged_one(tmp_path):
    older, newer = saved(tmp_path, 1, 2)
    weights = newer / "model.safetensors"
    weights.unlink()
    weights.symlink_to("/proc/self/mem")  # a regular file whose first bytes cannot be read: EIO
    found, damaged = checkpoint.newest(tmp_path)
    assert found == older
    assert damaged[0].reason == "model.safetensors cannot be read: Input/output error"


def test_a_checkpoint_with_the_sums_of_older_ones_is_verified_too(tmp_path):
    older, newer = saved(tmp_path, 1, 2)
    for folder in (older, newer):
        (folder / "manifest.json").write_text(json.dumps({name: sha256(folder / name) for name in checkpoint.FILES}))
    assert checkpoint.newest(tmp_path) == (newer, [])
    flip(newer / "model.safetensors")
    assert checkpoint.newest(tmp_path)[0] == older


def test_a_sound_checkpoint_takes_the_place_of_a_damaged_one_of_the_same_step(tmp_path):
    (folder,) = saved(tmp_path, 1)
    flip(folder / "model.safetensors")
    saved(tmp_path, 1)
    assert checkpoint.newest(tmp_path) == (folder, [])
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


@pytest.mark.parametrize("name", ["progress.json", "index.json"])
def test_a_checkpoint_of_another_version_is_called_so(tmp_path, name):
    (folder,) = saved(tmp_path, 4)
    part = {"dtype": "F32", "shape": [1], "parts": [{"file": "../model.safetensors", "first": 0, "rows": 1}]}
    state = json.loads((folder / "progress.json").read_text())
    state["position"]["of_a_later_version"] = 1
    (folder / name).write_text(json.dumps(state if name == "progress.json" else {"model": {"a": part}}))
    names = {
        "progress.json",
        *(("index.json",) if name == "index.json" else ("model.safetensors", "optimizer.safetensors")),
    }
    (folder / "manifest.json").write_text(json.dumps({each: checksum(folder / each) for each in names}))
    with pytest.raises(CheckpointError, match=rf"{name} is not as this version of attune writes it"):
        checkpoint.load(folder)


def test_a_full_disk_leaves_what_was_there(tmp_path):
    (older,) = saved(tmp_path, 1)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # no file may grow past this, as on a full disk
    try:
        with pytest.raises(CheckpointError, match="checkpoint of step 2.*intact"):
            saved(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoint.newest(tmp_path) == (older, [])
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_pruning_keeps_the_last_ones_and_the_best_and_clears_what_killed_saves_left(tmp_path):
    saved(tmp_path, 1, 2, 3, 4, 5)
    (tmp_path / ".step-000006.part-12345678").mkdir()
    checkpoint.prune(tmp_path, keep_last=2, keep_steps={2})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000004", "step-000005"]


@pytest.mark.parametrize("keep_last", [1, 2, 3, 5])
def test_pruning_after_every_save_keeps_as_many_as_are_asked_for(tmp_path, keep_last):
    for step in range(1, 9):
        saved(tmp_path, step)
        checkpoint.prune(tmp_path, keep_last, set())
        assert len(checkpoint.sound(tmp_path)) == min(step, keep_last)


def test_what_was_saved_only_to_stop_does_not_count_and_goes_with_the_next(tmp_path):
    saved(tmp_path, 3, 6)
    checkpoint.save(tmp_path, replace(made(7), is_stopgap=True))
    checkpoint.prune(tmp_path, 2, set())
    assert [folder.name for folder in checkpoint.sound(tmp_path)] == ["step-000003", "step-000006", "step-000007"][1:]
    saved(tmp_path, 9)
    checkpoint.prune(tmp_path, 2, set())
    assert [folder.name for folder in checkpoint.sound(tmp_path)] == ["step-000006", "step-000009"]


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_an_optimizer_goes_on_in_the_same_bits_from_its_state_by_name(name):
    def fresh():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8))
        return model, make_optimizer(name, model, 1e-2, 0.1, (0.9, 0.98))

    def step(model, optimizer, seed):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randn(5, 4)).pow(3).sum().backward()
        optimizer.step()

    model, optimizer = fresh()
    step(model, optimizer, 1)
    kept, weights = state_by_name(optimizer, model), {k: v.clone() for k, v in model.state_dict().items()}
    kept = {name: value.clone() for name, value in kept.items()}
    step(model, optimizer, 2)

    other, resumed = fresh()
    other.load_state_dict(weights)
    load_state_by_name(resumed, other, kept)
    step(other, resumed, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
