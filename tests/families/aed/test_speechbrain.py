"""SpeechBrain's golden files: each clip alone as SpeechBrain has it alone, and the same in any batch."""

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import soundfile
import torch
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

from attune.decoding import tokens
from attune.decoding.fusion import Fusion
from attune.decoding.search import Search, search
from attune.errors import ModelError
from attune.families._hyperparams import Tagged, read_hyperparams
from attune.families.aed import FAMILY, AedConfig
from attune.families.aed.rules import AttentionRules, rules_of
from attune.families.aed.speechbrain import import_folder
from attune.families.lm.model import FusedLm, LmShape, RecurrentLm
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

    def batch(self, numbers):
        audio = [self.clips[number] for number in numbers]
        ids = [torch.tensor([0, *self.expected[number]["token_ids"], 0]) for number in numbers]
        return Batch(
            tuple(map(str, numbers)),
            pad_sequence(audio, batch_first=True),
            torch.tensor([len(each) for each in audio]),
            TokenTargets(pad_sequence(ids, batch_first=True), torch.tensor([len(each) for each in ids])),
        )


@cache
def golden():
    folder = golden_folder()
    with tempfile.TemporaryDirectory() as assets:
        tensors = import_folder(folder, Path(assets))
        built = FAMILY.build(AedConfig(weights=str(folder)), Text(), Path(assets))
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
        energies, _ = model.front_end.energies(batch.audio, batch.lengths)
        torch.testing.assert_close(energies[0], known.tensors[want + "fbank"], atol=1e-4, rtol=0)
        frames, lengths = model.encode(batch)
        torch.testing.assert_close(frames[0], known.tensors[want + "encoder"], atol=1e-4, rtol=0)
        ctc = model.ctc(frames)[0].log_softmax(-1)
        torch.testing.assert_close(ctc, known.tensors[want + "ctc_log_probs"], atol=1e-4, rtol=0)
        logits = model.decoder(batch.targets.ids[:, :-1], model.decoder.attend(frames, lengths))[0]
        expected = known.tensors[want + "decoder_log_probs"]
        torch.testing.assert_close(logits.log_softmax(-1), expected, atol=1e-4, rtol=0)
    assert len(energies[0]) == known.expected[number]["feature_frames"]
    assert int(lengths) == known.expected[number]["encoder_frames"] == model.frames(int(batch.lengths))


@cache
def language_model():
    model = RecurrentLm(LmShape(tokens=96, embedding=16, rnn_layers=2, rnn_width=40, dnn_width=24)).eval()
    names = {"embedding.Embedding": "embedding", "dnn.linear.w": "dnn.0.linear", "dnn.norm.norm": "dnn.0.norm"}
    tensors = {}
    for name, tensor in torch.load(golden_folder() / "lm.ckpt", weights_only=True).items():
        for theirs, ours in {**names, "out.w": "output"}.items():
            name = name.replace(theirs, ours)
        tensors[re.sub(r"rnn\.rnn\.(\w+)_l(\d)", r"rnn.\2.\1_l0", name)] = tensor
    model.load_state_dict(tensors)
    return model


@pytest.mark.parametrize("number", range(4))
def test_the_language_model_is_as_speechbrain_has_it(number):
    known = golden()
    with torch.no_grad():
        logits, _ = language_model()(torch.tensor([[0, *known.expected[number]["token_ids"]]]))
    torch.testing.assert_close(
        logits.log_softmax(-1)[0], known.tensors[f"alone.{number}.lm_log_probs"], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(("smoothing", "name"), [(0.0, "seq_nll"), (0.1, "seq_nll_smooth0.1")])
def test_losses_are_as_speechbrain_has_them(number, smoothing, name):
    known = golden()
    model, expected = known.built.model, known.expected[number]
    with torch.no_grad():
        model.ctc_weight, model.label_smoothing = 0.0, smoothing
        loss = model.loss(known.batch([number]))
        assert float(loss.total / loss.count) == pytest.approx(expected["loss"][name], abs=1e-4)
        model.ctc_weight = 1.0
        total = float(model.loss(known.batch([number])).total)
    assert total / len(expected["token_ids"]) == pytest.approx(expected["loss"]["ctc"], abs=1e-4)


USUAL = dict(temperature=1.25, end_threshold=1.5, max_attention_shift=240)
SEARCHES = {
    "beam4": (USUAL, 0.0),
    "beam4_coverage1.5": ({**USUAL, "coverage": 1.5}, 0.0),
    "beam4_lm0.5_coverage1.5": ({**USUAL, "coverage": 1.5}, 0.5),
    "beam4_lm0.5_coverage1.5_threshold0.1": ({**USUAL, "coverage": 1.5, "coverage_threshold": 0.1}, 0.5),
    "beam4_noeosthr_lm0.5": ({**USUAL, "end_threshold": None}, 0.5),
    "beam4_shift20": ({**USUAL, "max_attention_shift": 20}, 0.0),
}


@torch.no_grad()
def searched(name, numbers):
    model, batch = golden().built.model, golden().batch(numbers)
    if name == "greedy":
        model.rules = AttentionRules()
        return [list(found.tokens) for found in tokens.greedy(model.scorer(batch))]
    settings, weight = SEARCHES[name]
    model.rules = rules_of(AedConfig(weights="x", **settings))
    fusion = Fusion(FusedLm(language_model(), temperature=1.25), weight) if weight else None
    found = tokens.beam_search(model.scorer(batch), 4, fusion=fusion)
    return [list(best.tokens) for (best,) in found]


@pytest.mark.parametrize("name", ["greedy", *SEARCHES])
def test_hypotheses_are_speechbrains_alone_and_the_same_in_any_batch(name):
    clips = [number for number in range(4) if name in golden().expected[number]["decode"]]
    expected = {number: golden().expected[number]["decode"][name]["ids"] for number in clips}
    assert {number: searched(name, [number])[0] for number in clips} == expected
    for order in (clips, clips[::-1]):
        assert dict(zip(order, searched(name, order), strict=True)) == expected


@torch.no_grad()
@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_joint_ctc_decoding_is_the_same_alone_and_in_any_batch(weight):
    model, settings = golden().built.model, Search("beam", 4, ctc_weight=weight, nbest=4)
    model.rules = rules_of(AedConfig(weights="x", **USUAL))
    alone = [search(model.scorer(golden().batch([number])), settings)[0] for number in range(4)]
    for order in ([0, 1, 2, 3], [3, 1, 2, 0]):
        found = dict(zip(order, search(model.scorer(golden().batch(order)), settings), strict=True))
        for number, expected in enumerate(alone):
            both = [(each, *each.nbest) for each in (found[number], expected)]
            assert [each.tokens for each in both[0]] == [each.tokens for each in both[1]]
            assert [each.score for each in both[0]] == pytest.approx([each.score for each in both[1]], abs=1e-3)


def test_no_tag_is_executed_and_nothing_is_included(tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_text(
        f"a: !apply:os.system [touch {tmp_path}/touched]\nb: !include:/etc/passwd\nc: !ref <d>\nd: !ref <e.f>\n"
        "e:\n  f: (1, 2)\n  g: 1.5e-3\nh: !ref <e.g>\n"
    )
    params = read_hyperparams(path)
    assert params.get("c") == (1, 2) and params.get("h") == 1.5e-3
    assert isinstance(params.get("a"), Tagged) and isinstance(params.get("b"), Tagged)
    assert not (tmp_path / "touched").exists()


def test_a_reference_to_itself_and_a_flood_of_aliases_are_refused(tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_text("a: !ref <b>\nb: !ref <a>\n")
    with pytest.raises(ModelError, match="leads back to itself"):
        read_hyperparams(path).get("a")
    path.write_text(
        "a: &a [1]\n"
        + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    )
    with pytest.raises(ModelError, match="more than 20,000 values"):
        read_hyperparams(path)


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_a_pickle_in_a_checkpoint_is_refused(tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(golden_folder(), folder)
    (folder / "asr.ckpt").chmod(0o600)
    torch.save({"0.a": Evil()}, folder / "asr.ckpt")
    with pytest.raises(ModelError, match="holds more than tensors"):
        import_folder(folder, tmp_path)
    assert "executed" not in capsys.readouterr().out


def test_other_architectures_are_refused_by_name(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(golden_folder(), folder, copy_function=shutil.copyfile)
    text = (folder / "hyperparams.yaml").read_text()
    (folder / "hyperparams.yaml").write_text(text.replace("rnn_type: gru", "rnn_type: lstm"))
    with pytest.raises(ModelError, match="rnn_type='lstm', where 'gru' is supported"):
        import_folder(folder, tmp_path)
