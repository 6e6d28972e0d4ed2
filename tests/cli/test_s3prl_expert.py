"""A DownstreamExpert folder of S3PRL runs as it is, where the user says so, and goes on where it stopped."""

import pytest

from attune.cli import main

EXPERT = """
import torch
from torch import nn
from .model import Head


class DownstreamExpert(nn.Module):
    def __init__(self, upstream_dim, upstream_rate, downstream_expert, expdir, **kwargs):
        super().__init__()
        self.head = Head(upstream_dim, downstream_expert["modelrc"]["classes"])
        self.register_buffer("best_score", torch.zeros(1))

    def get_dataloader(self, split):
        torch.manual_seed(0)
        tones = [torch.sin(torch.arange(4000 + 100 * n) * (0.05 if n % 2 else 0.4)) for n in range(8)]
        return [(tones[i : i + 4], [n % 2 for n in range(i, i + 4)]) for i in (0, 4)]

    def forward(self, split, features, labels, records, **kwargs):
        logits = self.head(torch.stack([each.mean(0) for each in features]))
        wanted = torch.tensor(labels, device=logits.device)
        records["acc"] += (logits.argmax(-1) == wanted).float().tolist()
        return nn.functional.cross_entropy(logits, wanted)

    def log_records(self, split, records, logger, global_step, **kwargs):
        accuracy = sum(records["acc"]) / len(records["acc"])
        logger.add_scalar(f"{split}-acc", accuracy, global_step=global_step)
        if split == "dev" and accuracy >= self.best_score.item():
            self.best_score = torch.ones(1) * accuracy
            return ["dev-best.ckpt"]
        return []
"""
CONFIG = """\
runner: {total_steps: 4, log_step: 2, eval_step: 2, save_step: 2, gradient_accumulate_steps: 1, eval_dataloaders: [dev]}
optimizer: {name: TorchOptim, lr: 0.1}
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
