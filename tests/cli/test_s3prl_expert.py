"""A DownstreamExpert folder of S3PRL runs as it is, where the user says so, and goes on where it stopped."""

import argparse
import re

import pytest
import torch

from attune.cli import main
from attune.families.ssl.downstream_expert import ExpertRun, load_expert, load_upstream
from attune.families.ssl.expert_config import read_config, read_optimizer, read_settings
from attune.families.ssl.featurizer import LayerFeaturizer

EXPERT = """
import torch
from torch import nn
from .model import Head


class DownstreamExpert(nn.Module):
    def __init__(self, upstream_dim, upstream_rate, downstream_expert, expdir, **kwargs):
        super().__init__()
        self.head = Head(upstream_dim, downstream_expert["modelrc"]["classes"])
        print(f"made for {kwargs.get('upstream')}, seed {kwargs.get('seed')}: {self.head.weight[0, 0].item()}")
        self.register_buffer("best_score", torch.zeros(1))

    def get_dataloader(self, split):
        torch.manual_seed(0)
        tones = [torch.sin(torch.arange(4000 + 100 * n) * (0.05 if n % 2 else 0.4)) for n in range(8)]
        return [(tones[i : i + 4], [n % 2 for n in range(i, i + 4)]) for i in (0, 4)]

    def forward(self, split, features, labels, records, **kwargs):
        logits = self.head(torch.stack([each.abs().mean(0) for each in features]))
        wanted = torch.tensor(labels, device=logits.device)
        records["acc"] += (logits.argmax(-1) == wanted).float().tolist()
        return nn.functional.cross_entropy(logits, wanted)

    def log_records(self, split, records, logger, global_step, batch_ids, total_batch_num, **kwargs):
        print(f"{split} batches {batch_ids} of {total_batch_num}")
        accuracy = sum(records["acc"]) / len(records["acc"])
        logger.add_scalar(f"{split}-acc", accuracy, global_step=global_step)
        if split == "dev" and accuracy >= self.best_score.item():
            self.best_score = torch.ones(1) * accuracy
            return ["dev-best.ckpt"]
        return []
"""
CONFIG = """\
runner: {total_steps: 4, log_step: 2, eval_step: 2, save_step: 2, gradient_accumulate_steps: 1, eval_dataloaders: [dev]}
optimizer: {name: TorchOptim, torch_optim_name: SGD, lr: 1e-1, momentum: 0.9}
scheduler: {name: linear_schedule_with_warmup, num_warmup_steps: 2}
downstream_expert: {modelrc: {classes: 2}}
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "my-downstream"
    folder.mkdir()
    (folder / "expert.py").write_text(EXPERT)
    (folder / "model.py").write_text("from torch import nn\n\nclass Head(nn.Linear):\n    pass\n")
    (folder / "config.yaml").write_text(CONFIG)
    return folder


@pytest.mark.parametrize("is_trainable", [False, True])
def test_a_frozen_upstream_has_no_dropout_before_or_after_an_evaluation(is_trainable, folder, tmp_path):
    config = read_config(folder / "config.yaml")
    upstream = load_upstream("fbank", None, tmp_path)
    expert = load_expert(folder, 240, 160, config, {"expdir": str(tmp_path)})
    run, modes = ExpertRun(upstream, LayerFeaturizer((240,), (0,), False), expert, tmp_path), []
    upstream.register_forward_pre_hook(lambda module, arguments: modes.append(module.training))
    device, optimizer = torch.device("cpu"), read_optimizer(config)
    list(run.train(read_settings(config), is_trainable, device, optimizer, lambda step: 0.1))
    trained, evaluated = modes[:2] + modes[4:6], modes[2:4] + modes[6:]
    assert trained == [is_trainable] * 4 and evaluated == [False] * 4


def test_the_folder_is_not_run_unasked(folder, tmp_path, capsys):
    (folder / "expert.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert main(["s3prl", "-m", "train", "-p", str(tmp_path / "exp"), "-u", "fbank", "-d", str(folder)]) == 2
    assert "--trust" in capsys.readouterr().err and not (tmp_path / "ran").exists()


def test_the_folder_trains_saves_what_it_asks_for_and_goes_on(folder, tmp_path, capsys):
    words = ["s3prl", "-m", "train", "-p", str(tmp_path / "exp"), "-u", "fbank", "-d", str(folder), "--trust"]
    assert main([*words, "--device", "cpu"]) == 0
    assert "step 4/4" in capsys.readouterr().out and (tmp_path / "exp" / "dev-best.ckpt").exists()
    assert main([*words, "--device", "cpu", "-o", "config.runner.total_steps=6"]) == 0
    out = capsys.readouterr().out
    assert "step 6/6" in out and "step 2/6" not in out
    assert main(["s3prl", "-m", "evaluate", *words[3:], "-t", "dev", "--device", "cpu"]) == 0
    assert "dev: loss" in capsys.readouterr().out


def expert_command(folder, exp, *more, mode="train"):
    return ["s3prl", "-m", mode, "-p", str(exp), "-u", "fbank", "-d", str(folder), "--trust", "--device=cpu", *more]


def test_an_expert_that_takes_the_epoch_is_given_it(folder, tmp_path, capsys):
    takes = "(self, split, epoch=None):\n        print(split, epoch)"
    (folder / "expert.py").write_text(EXPERT.replace("(self, split):", takes))
    assert main(expert_command(folder, tmp_path / "exp")) == 0
    out = capsys.readouterr().out
    assert "train 0" in out and "train 1" in out and "dev None" in out


def test_the_seed_the_schedule_and_the_overrides_of_the_folder_count(folder, tmp_path, capsys):
    lines = {}
    for name, changes in {
        "a": "args.seed=3",
        "again": "args.seed=3",
        "seed": "args.seed=4",
        "constant": "args.seed=3,,config.scheduler.name=constant_schedule",
        "adam": "args.seed=3,,config.optimizer={'name': 'Adam', 'lr': 0.1}",
        "classes": "args.seed=3,,config.downstream_expert.modelrc.classes=5",
    }.items():
        assert main(expert_command(folder, tmp_path / name, "-o", changes)) == 0
        lines[name] = capsys.readouterr().out
    assert lines["a"] == lines["again"] and "made for fbank, seed 3" in lines["a"]
    assert len({*lines.values()}) == 5
    assert "train batches [0, 1] of 2" in lines["a"] and "dev batches [0, 1] of 2" in lines["a"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("config.downstream_expert.modelrc.clases=3", "did you mean 'downstream_expert.modelrc.classes'"),
        ("config.runner.total_step=3", "did you mean 'runner.total_steps'"),
        ("config.optimizer.name=Lamb_with_schedule", "optimizer.name: Lamb_with_schedule is not there"),
        ("config.optimizer.torch_optim_name=nothing", "torch has no optimizer 'nothing'"),
        ("config.optimizer.momentun=1", "optimizer: .*momentun"),
        ("config.scheduler.name=linear_schedule", "scheduler.name=linear_schedule has no equivalent; did you mean"),
    ],
)
def test_what_the_folders_configuration_cannot_say_is_refused(change, message, folder, tmp_path, capsys):
    assert main(expert_command(folder, tmp_path / "exp", "-o", change)) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_checkpoint_that_the_expert_saved_is_evaluated_and_started_from(folder, tmp_path, capsys):
    exp = tmp_path / "exp"
    assert main(expert_command(folder, exp, "-o", "config.runner.eval_step=1,,config.runner.total_steps=1")) == 0
    first = capsys.readouterr().out.splitlines()[-1]  # the evaluation after the step whose weights it saved
    assert main(expert_command(folder, exp, "-o", "config.runner.total_steps=9,,config.runner.eval_step=50")) == 0
    command = [each for each in expert_command(folder, exp, mode="evaluate") if each not in ("-p", str(exp))]
    capsys.readouterr()
    assert main([*command, "-e", str(exp / "dev-best.ckpt"), "-t", "dev"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == first
    assert main([*command, "-e", str(exp), "-t", "dev"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] != first
    start = ["-i", str(exp / "dev-best.ckpt"), "-o", "config.runner.total_steps=1,,config.optimizer.lr=0"]
    assert main(expert_command(folder, tmp_path / "other", *start)) == 0
    capsys.readouterr()
    assert main(expert_command(folder, tmp_path / "other", "-t", "dev", mode="evaluate")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == first


def test_a_checkpoint_of_s3prl_itself_is_refused(folder, tmp_path, capsys):
    torch.save({"Downstream": {}, "Args": argparse.Namespace()}, tmp_path / "states-4.ckpt")
    assert main(expert_command(folder, tmp_path, "-e", str(tmp_path / "states-4.ckpt"), mode="evaluate")) == 2
    assert "was not written by attune" in capsys.readouterr().err
