"""A step that is walked without memory takes, on paper, what the same step takes when it runs."""

import copy
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from attune.errors import ConfigError
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.shape import WhisperShape
from attune.stages.fit_elsewhere import WalkedStep, place, walk_step
from attune.tasks.transcribe.head import CtcHead
from attune.training.deferred import Deferred
from attune.training.gradients import Gradients
from attune.training.micro import Eager
from attune.training.optimizer import make_optimizer
from attune.training.settings import OptimizerConfig
from attune.types import Batch, TokenTargets

pytestmark = pytest.mark.recipe

GIB = 2**30


def whisper(saves_memory):
    sizes = (3, 2, 512)
    shape = WhisperShape(1769, 80, 128, *sizes, *sizes, 1500, 48, 0.0, 0.0, 0.0)
    return WhisperModel(shape, "full", SimpleNamespace(start=1), saves_memory)


class Recurrent(nn.Module):
    """Packs rows by their lengths, which operations without memory do not know."""

    def __init__(self):
        super().__init__()
        self.head = CtcHead(400, 256, 2, 500, 0.1)

    def loss(self, batch):
        frames = batch.audio.view(len(batch.ids), -1, 400)
        return self.head.loss(frames, batch.lengths // 400, batch)


def batch_of():
    ids = torch.arange(1, 17).repeat(2, 1)
    return Batch(
        ("a", "b"), torch.zeros(2, 16_000), torch.tensor([16_000, 8_000]), TokenTargets(ids, torch.tensor([16, 8]))
    )


def measured(model, batch, precision):
    """What torch's own profiler counts: before the step, and at most during it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        optimizer = make_optimizer("adamw", model, 0.0, 0.0, (0.9, 0.98))
        Gradients(each for each in model.parameters() if each.requires_grad)
        optimizer.step()
        Eager(model.train(), precision, torch.device("cpu"))(batch, 1.0)
    events = [each for each in watched.profiler.kineto_results.events() if each.name() == "[memory]"]
    changes = [each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())]
    return max(accumulate(changes)) + sum(each.nbytes for each in model.parameters())


@pytest.mark.parametrize(
    ("build", "precision"),
    [(lambda: whisper(False), "bf16"), (lambda: whisper(True), "fp32"), (Recurrent, "fp32")],
)
def test_a_walked_step_has_the_peak_that_the_profiler_finds(build, precision):
    batch = batch_of()
    with Deferred(draws=False):
        shapes = build()
    found = walk_step(shapes, batch, OptimizerConfig(lr=1e-4), precision)
    real = measured(build(), batch, precision)
    assert found.on_device("none", False, 1) == pytest.approx(real, rel=0.05)


class Copied(nn.Module):
    """Computes with a narrow copy of itself, as a frozen upstream does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(400, 400)

    def loss(self, batch):
        return copy.deepcopy(self.layer).to(torch.bfloat16)(batch.audio.view(-1, 400)).sum()


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_a_model_that_needs_real_tensors_is_refused():
    with pytest.raises(ConfigError, match="--memory cannot estimate this model"):
        walk_step(Copied(), batch_of(), OptimizerConfig(lr=1e-4), "fp32")


def test_what_ranks_share_is_divided_and_what_they_compute_is_not():
    step = WalkedStep(
        weights=8 * GIB, gradients=8 * GIB, state=16 * GIB, activations=GIB, rest=GIB, layer=GIB // 4, trained=1.0
    )
    found = {(each.shard, each.offload): each for each in place(step, 8, 24 * GIB, ("full", False))}
    assert found["none", False].device == 33 * GIB and not found["none", False].fits
    assert found["optimizer", False].device == 19 * GIB
    assert found["gradients", False].device == (4 + 8 + 0.5 + 1) * GIB
    assert found["full", False].device == (4 + 1.5 + 0.5 + 1) * GIB and found["full", False].is_own
    assert found["full", True].device == 3 * GIB and found["full", True].host == 4 * GIB
    assert [(each.shard, each.offload) for each in place(step, 1, GIB, ("none", False))] == [
        ("none", False), ("gradients", True), ("full", True)
    ]  # fmt: skip
