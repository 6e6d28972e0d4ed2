"""SpeechBrain's golden files: each clip alone as SpeechBrain has it alone, and the same in any batch."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import soundfile
import torch
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

from attune.errors import ModelError
from attune.families.aed import FAMILY, AedConfig
from attune.families.aed.hyperparams import Tagged, read_hyperparams
from attune.families.aed.speechbrain import import_folder
from attune.types import Batch, TokenTargets


def golden_folder():
    for parent in Path(__file__).parents:
        folder = parent / "shared" / "fixtures" / "speechbrain-crdnn"
        if folder.is_dir():
            return folder
    pytest.skip("needs the golden files speechbrain-crdnn")


class Text:
    """A task about text, with the model's own tokens."""

    language = None

    def text(self, utterance):
        return utterance.text or ""


@dataclass
class Golden:
    built: object
    clips: list
    expected: list
    tensors: dict

    def batch(self, numbers, tokens=None):
        audio = [self.clips[number] for number in numbers]
        ids = [torch.tensor(self.expected[number]["token_ids"]) for number in numbers]
        return Batch(
            tuple(map(str, numbers)),
            pad_sequence(audio, batch_first=True),
            torch.tensor([len(each) for each in audio]),
            TokenTargets(pad_sequence(ids, batch_first=True), torch.tensor([len(each) for each in ids])),
        )


@cache
def golden(tmp=[]):
    import tempfile

    folder = golden_folder()
    assets = Path(tempfile.mkdtemp())
    tensors = import_folder(folder, assets)
    config = AedConfig(weights=str(folder), ctc_weight=0.3)
    built = FAMILY.build(config, Text(), assets)
    built.module.load_state_dict(dict(tensors))
    built.module.eval()
    expected = json.loads((folder / "expected.json").read_text())["clips"]
    clips = [torch.tensor(soundfile.read(folder / each["file"], dtype="float32")[0]) for each in expected]
    return Golden(built, clips, expected, load_file(folder / "expected.safetensors"))


@pytest.mark.parametrize("number", range(4))
def test_each_clip_alone_is_as_speechbrain_has_it(number):
    known = golden()
    model, batch, want = known.built.model, known.batch([number]), f"alone.{number}."
    with torch.no_grad():
        energies, counts = model.front_end.energies(batch.audio, batch.lengths)
        torch.testing.assert_close(energies[0], known.tensors[want + "fbank"], atol=1e-4, rtol=0)
        frames, lengths = model.encode(batch)
        torch.testing.assert_close(frames[0], known.tensors[want + "encoder"], atol=1e-4, rtol=0)
        ctc = model.ctc(frames)[0].log_softmax(-1)
        torch.testing.assert_close(ctc, known.tensors[want + "ctc_log_probs"], atol=1e-4, rtol=0)
        begun = torch.nn.functional.pad(batch.targets.ids, (1, 0))
        logits = model.decoder(begun, model.decoder.attend(frames, lengths))[0]
        expected = known.tensors[want + "decoder_log_probs"]
        torch.testing.assert_close(logits.log_softmax(-1), expected, atol=1e-4, rtol=0)
    assert len(energies[0]) == known.expected[number]["feature_frames"]
    assert int(lengths) == known.expected[number]["encoder_frames"] == model.frames(int(batch.lengths))
