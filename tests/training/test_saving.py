from pathlib import Path

import torch
import torch._dynamo  # before ranks are forked: each would load it
from torch import nn

from attune.batches.micro_batch import Position
from attune.testing.ranks import run_ranks
from attune.training import checkpoint
from attune.training.checkpoint import Checkpoint
from attune.training.deferred import Deferred
from attune.training.optimizer import make_optimizer
from attune.training.progress import TrainingProgress
from attune.training.saving import ShardedSaver
from attune.training.sharding import fill_slices, load_stored, share_weights

WIDTH = 130  # as large as tensors are that are built without their memory


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.output = nn.Linear(WIDTH, 2)

    def loss(self, inputs):
        return self.output(self.norm(self.layers[1](self.layers[0](inputs)))).square().sum()


def made(world, name="adamw", offloads=False):
    torch.manual_seed(5)
    if world.size == 1 and not offloads:
        model = Small()
    else:
        deferred = Deferred()
        with deferred:
            model = Small()
        tensors = deferred.tensors(model)
        assert sum(each.device.type == "meta" for each in model.parameters()) == 2
        share_weights(model, world, offloads=offloads)
        fill_slices(model, tensors, world.device, offloads)
    return model, make_optimizer(name, model, 0.1, 0.0, (0.9, 0.99))


def step(model, optimizer):
    optimizer.zero_grad()
    model.loss(torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(3))).backward()
    optimizer.step()


def values(model, optimizer):
    """Everything as one device would have it."""
    state = [value for each in optimizer.state.values() for value in each.values()]
    whole = [
        each.full_tensor() if hasattr(each, "full_tensor") else each for each in [*model.state_dict().values(), *state]
    ]
    return [each.detach().clone() for each in whole]


def trained(world, offloads: bool, steps: int):
    model, optimizer = made(world, offloads=offloads)
    for _ in range(steps):
        step(model, optimizer)
    return values(model, optimizer)


def test_slices_that_are_filled_one_by_one_are_the_whole_model_and_train_the_same_when_offloaded():
    whole, found = (run_ranks(ranks, trained, False, 0)[0] for ranks in (1, 2))
    assert all(torch.equal(one, other) for one, other in zip(whole, found, strict=True))
    here, offloaded = (run_ranks(2, trained, offloads, 3)[0] for offloads in (False, True))
    assert all(torch.equal(one, other) for one, other in zip(here, offloaded, strict=True))


def saved_while_training(world, folder: Path, name: str):
    """What was there when a save began, which training changes at once."""
    model, optimizer = made(world, name)
    step(model, optimizer)
    saver = ShardedSaver(folder, model, optimizer, world, lambda *_: None)
    before = values(model, optimizer)
    saver.begin(Checkpoint({}, {}, TrainingProgress(Position(7))))
    step(model, optimizer)
    state, found = saver.finish()
    saver.close()
    world.barrier()
    assert state.progress.position.step == 7
    assert not world.is_first or found == checkpoint.folder_of(folder, 7)
    return before


def loaded(world, folder: Path, name: str):
    model, optimizer = made(world, name)
    step(model, optimizer)
    step(model, optimizer)
    newest, _ = checkpoint.newest(folder)
    load_stored(model, optimizer, checkpoint.tensors(newest), checkpoint.tensors(newest, checkpoint.OPTIMIZER))
    return values(model, optimizer)


def test_what_training_changes_meanwhile_is_saved_as_it_was_and_read_by_any_number_of_ranks(tmp_path):
    before = run_ranks(2, saved_while_training, tmp_path, "adamw")[0]
    for ranks in (2, 3, 1):
        for found in run_ranks(ranks, loaded, tmp_path, "adamw"):
            assert all(torch.equal(one, other) for one, other in zip(found, before, strict=True))


def test_8_bit_codes_are_the_same_in_shards_and_whole(tmp_path):
    run_ranks(2, saved_while_training, tmp_path, "adamw8bit")
    alone = run_ranks(1, loaded, tmp_path, "adamw8bit")[0]
    for found in run_ranks(3, loaded, tmp_path, "adamw8bit"):
        assert all(
            torch.equal(one.flatten(), other.flatten()[: one.numel()]) for one, other in zip(found, alone, strict=True)
        )


def fail_on_one_rank(world, folder: Path):
    model, optimizer = made(world)
    saver = ShardedSaver(folder / "gone" / "deeper" if world.rank else folder, model, optimizer, world, lambda *_: None)
    saver.begin(Checkpoint({}, {}, TrainingProgress(Position(7))))
    try:
        saver.finish()
    except checkpoint.CheckpointError as error:
        return str(error)
    finally:
        saver.close()
    return ""


def test_a_rank_that_cannot_write_leaves_no_checkpoint_and_every_rank_that_matters_says_why(tmp_path):
    reasons = run_ranks(2, fail_on_one_rank, tmp_path)
    assert all("Cannot write the checkpoint of step 7: No such file or directory" in reason for reason in reasons)
    assert not list(tmp_path.iterdir())
