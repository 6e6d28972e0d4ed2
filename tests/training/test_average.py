import pytest
import torch

from attune.batches.micro_batch import Position
from attune.errors import CheckpointError
from attune.training import checkpoint
from attune.training.adapt import merge_lora
from attune.training.average import average
from attune.training.checkpoint import Checkpoint
from attune.training.progress import TrainingProgress
from attune.training.settings import AdaptConfig


def saved(folder, *states):
    """A checkpoint of each state, and their folders."""
    return [
        checkpoint.save(folder, Checkpoint(state, {}, TrainingProgress(Position(step))))
        for step, state in enumerate(states, start=1)
    ]


def test_the_weights_are_the_mean_and_counters_are_the_last_ones(tmp_path):
    states = [{"weight": torch.full((2,), value), "seen": torch.tensor(int(value))} for value in (1.0, 2.0, 6.0)]
    mean = average(saved(tmp_path, *states))
    assert mean["weight"].tolist() == [3.0, 3.0] and mean["weight"].dtype == torch.float32
    assert mean["seen"] == 6 and mean["seen"].dtype == torch.int64


def test_small_weights_are_not_lost_beside_large_ones(tmp_path):
    states = [{"weight": torch.tensor([value])} for value in (1e8, 1.0, -1e8)]
    assert float(average(saved(tmp_path, *states))["weight"]) == pytest.approx(1 / 3)


def test_half_precision_stays_half_precision(tmp_path):
    states = [{"weight": torch.tensor([value], dtype=torch.bfloat16)} for value in (1.0, 2.0)]
    assert average(saved(tmp_path, *states))["weight"].dtype == torch.bfloat16


def test_the_average_of_one_is_itself(tmp_path):
    state = {"weight": torch.randn(50)}
    assert torch.equal(average(saved(tmp_path, state))["weight"], state["weight"])


def test_lora_is_multiplied_before_it_is_averaged(tmp_path):
    def state(down, up):
        parts = {"base_layer.weight": 0.0, "lora_A.default.weight": down, "lora_B.default.weight": up}
        return {f"layer.{name}": torch.tensor([[value]]) for name, value in parts.items()}

    settings = AdaptConfig(method="lora", rank=1, alpha=1.0)
    folders = saved(tmp_path, state(1.0, 2.0), state(3.0, 4.0))
    mean = average(folders, lambda tensors: merge_lora(tensors, settings))
    assert {name: float(tensor) for name, tensor in mean.items()} == {"layer.weight": 7.0}


@pytest.mark.parametrize("other", [{"bias": torch.zeros(2)}, {"weight": torch.zeros(3)}])
def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path, other):
    folders = saved(tmp_path, {"weight": torch.zeros(2)}, other)
    with pytest.raises(CheckpointError, match="step-000002 is a checkpoint of another model.*weight"):
        average(folders)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    folders = saved(tmp_path, {"weight": torch.zeros(2)}, {"weight": torch.zeros(2)})
    (folders[1] / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="step-000002 is damaged"):
        average(folders)
