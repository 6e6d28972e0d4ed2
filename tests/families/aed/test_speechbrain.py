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

from attune import recipe as recipes
from attune.cli import main
from attune.decoding import tokens
from attune.decoding.fusion import Fusion
from attune.decoding.search import Search, search
from attune.errors import ModelError
from attune.families._hyperparams import Tagged, read_hyperparams
from attune.families._speechbrain import read_tensors
from attune.families.aed import FAMILY, AedConfig
from attune.families.aed.normalization import FeatureNorm
from attune.families.aed.rules import AttentionRules, rules_of
from attune.families.aed.speechbrain import import_folder
from attune.families.lm import FAMILY as LM
from attune.families.lm import LmConfig
from attune.families.lm.model import FusedLm
from attune.families.lm.speechbrain import import_lm
from attune.families.lm.transformer import TransformerLm, TransformerLmShape
from attune.types import Batch, TokenTargets, Utterance

from range_server import Behavior, serving
from servers.hub import Hub, serve_hub


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
        tensors = import_folder(folder, Path(assets)).tensors
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
    with tempfile.TemporaryDirectory() as assets:
        tensors = import_lm(golden_folder(), Path(assets)).tensors
        built = LM.build(LmConfig(tokens="own"), Text(), Path(assets))
    built.module.load_state_dict(tensors)
    return built.module.eval().net


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
    model.rules = rules_of(AedConfig(weights="x", **USUAL, coverage=1.5))
    alone = [search(model.scorer(golden().batch([number])), settings)[0] for number in range(4)]
    for order in ([0, 1, 2, 3], [3, 1, 2, 0]):
        found = dict(zip(order, search(model.scorer(golden().batch(order)), settings), strict=True))
        for number, expected in enumerate(alone):
            both = [(each, *each.nbest) for each in (found[number], expected)]
            assert [each.tokens for each in both[0]] == [each.tokens for each in both[1]]
            assert [each.score for each in both[0]] == pytest.approx([each.score for each in both[1]], abs=1e-3)
            parts = [dict(each.parts) for each in both[0]]
            assert all([*own] == ["attention", "coverage", "ctc", "length"] for own in parts)
            ranks = [sum(own.values()) for own in parts]
            assert ranks == sorted(ranks, reverse=True)


def test_references_are_resolved_and_nothing_is_made(tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_text(
        "a: !new:os.system [echo]\nc: !ref <d>\nd: !ref <e.f>\ne:\n  f: (1, 2)\n  g: 1.5e-3\nh: !ref <e.g>\n"
        "seed: !apply:torch.manual_seed [1]\nhub: org/name\npath: !ref <home>/lm.ckpt\nhome: !ref <hub>\n"
    )
    params = read_hyperparams(path)
    assert params.get("c") == (1, 2) and params.get("h") == 1.5e-3 and params.get("path") == "org/name/lm.ckpt"
    assert isinstance(params.get("a"), Tagged)


def test_sums_in_references_are_added_up_and_keys_within_keys_are_found_as_hyperpyyaml_does(tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_text(
        "n: 16\nfolder: results/2\ntwice: !ref <n> * 2\nhalf: !ref <n> // 2 - 1\nratio: !ref <n> / 32\n"
        "sizes: {small: [1, 2], large: {width: !ref <twice>}}\nwidth: !ref <sizes[large][width]>\n"
        "same: !copy <sizes[small]>\nfile: !ref <folder>/<n>/lm.ckpt\nboth: !tuple (3, 4)\n"
        "huge: !ref <n> ** <n> ** <n> ** <n>\nroot: !ref -2 ** 0.5\nnone: !ref <n> / 0\nlost: !ref <m> + 1\n"
    )
    params = read_hyperparams(path)
    found = [params.get(key) for key in ("twice", "half", "ratio", "width", "same", "file", "both")]
    assert found == [32, 7, 0.5, 32, (1, 2), "results/2/16/lm.ckpt", (3, 4)]
    assert [params.get(key) for key in ("huge", "none")] == ["16 ** 16 ** 16 ** 16", "16 / 0"]
    assert params.get("root") == -(2**0.5)
    with pytest.raises(ModelError, match="refers to <m>, but has no m"):
        params.get("lost")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("a: !apply:os.system [touch {touched}]", "!apply:os.system"),
        ("a: {{b: [!apply:subprocess.run [touch, {touched}]]}}", "!apply:subprocess.run"),
        ("a: !applyref:os.system [touch {touched}]", "!applyref:os.system"),
        ("a: !include:/etc/passwd", "!include:/etc/passwd"),
        ("a: !!python/object/apply:os.system [touch {touched}]", "!!python/object/apply:os.system"),
        ("a: !!python/name:os.system x", "!!python/name:os.system"),
    ],
)
def test_what_would_run_or_read_something_is_refused_by_name(tmp_path, line, named, capsys):
    folder = tmp_path / "model"
    shutil.copytree(golden_folder(), folder, copy_function=shutil.copyfile)
    file, touched = folder / "hyperparams.yaml", tmp_path / "touched"
    lines = len(file.read_text().splitlines())
    file.write_text(file.read_text() + line.format(touched=touched) + "\n")
    assert main(["import", str(folder), "--to", str(tmp_path / "own")]) == 2
    printed = capsys.readouterr().err
    assert f"hyperparams.yaml:{lines + 1}: {named} is refused" in printed and "Nothing was run or read" in printed
    assert not touched.exists() and not (tmp_path / "own").exists() and "root:" not in printed


def test_a_reference_to_itself_and_a_flood_of_aliases_are_refused(tmp_path):
    path = tmp_path / "hyperparams.yaml"
    path.write_text("a: !ref <b>\nb: !ref <a>\n")
    with pytest.raises(ModelError, match="refers to itself"):
        read_hyperparams(path).get("a")
    path.write_text("a: !ref <b>/x\nb: !ref <a>/y\n")
    with pytest.raises(ModelError, match="refers to itself"):
        read_hyperparams(path).get("a")
    path.write_text(
        "a: &a [1]\n"
        + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    )
    with pytest.raises(ModelError, match="more than 20,000 values"):
        read_hyperparams(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("!ref <a{0}><a{0}>", "10,000 characters"), ("[!ref <a{0}>, !ref <a{0}>]", "lead to more than 20,000 values")],
)
def test_a_flood_of_references_is_refused(tmp_path, line, reason):
    path = tmp_path / "hyperparams.yaml"
    path.write_text("a0: text\n" + "".join(f"a{n + 1}: {line.format(n)}\n" for n in range(15)))
    with pytest.raises(ModelError, match=reason):
        read_hyperparams(path).get("a15")


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_a_pickle_in_a_checkpoint_is_refused(tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(golden_folder(), folder)
    (folder / "asr.ckpt").chmod(0o600)
    torch.save({"0.a": Evil()}, folder / "asr.ckpt")
    with pytest.raises(ModelError, match="has more than tensors"):
        import_folder(folder, tmp_path)
    assert "executed" not in capsys.readouterr().out


def test_other_architectures_are_refused_by_name(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(golden_folder(), folder, copy_function=shutil.copyfile)
    text = (folder / "hyperparams.yaml").read_text()
    (folder / "hyperparams.yaml").write_text(text.replace("rnn_type: gru", "rnn_type: lstm"))
    with pytest.raises(ModelError, match="rnn_type='lstm'; only 'gru' is supported"):
        import_folder(folder, tmp_path)


@pytest.mark.recipe
def test_a_folder_is_imported_with_its_search_its_language_model_and_its_statistics(tmp_path, capsys):
    own = tmp_path / "own"
    assert main(["import", str(golden_folder()), "--to", str(own)]) == 0
    assert f"decode.lm={own / 'lm'} decode.lm_weight=0.5 decode.lm_temperature=1.25" in capsys.readouterr().out
    recipe, lm = (recipes.load(folder / "recipe.yaml", []).recipe for folder in (own, own / "lm"))
    assert (recipe.decode.search, recipe.decode.beam, recipe.decode.length_power) == ("beam", 4, 1.0)
    assert rules_of(recipe.model.config) == AttentionRules(1.25, 1.5, 240, 1.5)
    assert (lm.task.name, lm.model.family) == ("language_model", "lm")
    assert float(load_file(own / "model.safetensors")["front_end.norm.count"]) == 80593

    rows = [{"id": each["file"], "audio": str(golden_folder() / each["file"])} for each in golden().expected]
    rows = [{**row, "duration": len(clip) / 16000, "text": "x"} for row, clip in zip(rows, golden().clips, strict=True)]
    manifest, found = tmp_path / "clips.jsonl", {}
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fused = [f"decode.lm={own / 'lm'}", "decode.lm_weight=0.5", "decode.lm_temperature=1.25"]
    for words in (["--batch", "1"], ["--batch", "4"], ["--batch", "3", "--devices", "2", "--device", "cpu"]):
        out = tmp_path / "found.jsonl"
        main(["evaluate", str(own), *fused, "--on", str(manifest), "--out", str(out), "--json", *words])
        found[tuple(words)] = [json.loads(line)["value"] for line in out.read_text().splitlines()]
        out.unlink()
    expected = [each["transcribe_batch"]["text"] for each in golden().expected]
    assert list(found.values()) == [expected] * 3


def broken(tmp_path, *changes):
    folder = tmp_path / "speechbrain"
    tmp_path.mkdir(exist_ok=True)
    shutil.copytree(golden_folder(), folder, copy_function=shutil.copyfile)
    text = (folder / "hyperparams.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "hyperparams.yaml").write_text(text)
    return folder


def test_weights_of_the_search_are_found_where_speechbrain_had_them_before_and_has_them_since(tmp_path):
    since = import_folder(golden_folder(), tmp_path).overrides
    assert {"decode.length_power=1", "model.coverage=1.5"} <= {*since} and "ctc" not in str(since)
    own = "".join(
        f"    {line}\n" for line in ("coverage_penalty: 1.7", "ctc_weight: 0.4", "length_normalization: False")
    )
    changes = ("S2SRNNBeamSearcher", "S2SRNNBeamSearchLM"), ("    scorer: !ref <scorer>\n", own)
    older = broken(tmp_path, *changes)
    found = {*import_folder(older, tmp_path).overrides}
    assert {"decode.search=beam", "decode.length_power=0", "model.coverage=1.7", "decode.ctc_weight=0.4"} <= found


def test_what_would_silently_give_other_results_is_refused_by_its_key(tmp_path):
    for number, (old, new, named) in enumerate(
        [
            (
                "activation: !name:torch.nn.LeakyReLU\ndropout: 0.15",
                "activation: !name:a.ReLU\ndropout: 0.15",
                "activation",
            ),
            ("cnn_kernelsize: (3, 3)", "cnn_kernelsize: (3, 5)", "cnn_kernelsize"),
            ("sample_rate: 16000", "sample_rate: 8000", "sample_rate=8000"),
            ("    n_fft: !ref <n_fft>\n", "    n_fft: !ref <n_fft>\n    win_length: 20\n", "win_length=20; only 25.0"),
            ("    n_fft: !ref <n_fft>\n", "    n_fft: !ref <n_fft>\n    deltas: True\n", "deltas=True"),
            ("features.Fbank", "features.MFCC", "no Fbank features"),
            ("norm_type: global", "norm_type: speaker", "norm_type=speaker"),
            ("norm_type: global", "norm_type: global\n    std_norm: False", "std_norm=False"),
            ("rnn_neurons: 32", "rnn_neurons: !PLACEHOLDER", "rnn_neurons=!PLACEHOLDER; expected a whole number"),
        ]
    ):
        with pytest.raises(ModelError, match=re.escape(named)):
            import_folder(broken(tmp_path / str(number), (old, new)), tmp_path)
    lm = broken(tmp_path / "lm", ("activation: !name:torch.nn.LeakyReLU\n    dropout: 0.0", "activation: !name:a.Tanh"))
    with pytest.raises(ModelError, match="activation=Tanh"):
        import_lm(lm, tmp_path)


def test_features_are_found_under_any_key_and_normalized_as_the_file_says(tmp_path):
    changes = ("compute_features: !new", "feats: !new"), ("    compute_features: !ref <compute_features>\n", "")
    folder = broken(
        tmp_path / "a",
        *changes,
        ("    n_fft: !ref <n_fft>\n", "    n_fft: 512\n    win_length: 32\n    hop_length: 20\n"),
    )
    import_folder(folder, tmp_path)
    shape = json.loads((tmp_path / "model.json").read_text())
    assert (shape["transform"], shape["hop"]) == (512, 320)
    loaded = "        normalizer: !ref <normalizer>\n"
    sentence = import_folder(
        broken(tmp_path / "b", ("norm_type: global", "norm_type: sentence"), (loaded, "")), tmp_path
    )
    assert "model.normalize=sentence" in sentence.overrides and "front_end.norm.mean" not in sentence.tensors
    (folder / "normalizer.ckpt").chmod(0o600)
    torch.save({"count": 3, "glob_mean": torch.zeros(1)}, folder / "normalizer.ckpt")
    with pytest.raises(ModelError, match="normalizer.ckpt has no glob_mean of 40 mel bands"):
        import_folder(folder, tmp_path)


@pytest.mark.parametrize("number", range(4))
def test_sentence_normalization_is_speechbrains(number):
    energies = golden().tensors[f"alone.{number}.fbank"]
    found = FeatureNorm(40, "sentence")(energies[None], torch.tensor([len(energies)]))[0]
    expected = (energies - energies.mean(0)) / energies.std(0, correction=0).clamp(min=1e-10)  # since its version 1.1
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_searchers_defaults_are_those_of_speechbrain_and_the_language_model_is_fused_as_it_is_there(tmp_path):
    own = "    eos_threshold: !ref <eos_threshold>\n", "    max_attn_shift: !ref <max_attn_shift>\n"
    folder = broken(
        tmp_path, *((line, "") for line in own), ("CoverageScorer\n", "CoverageScorer\n    threshold: 0.1\n")
    )
    found = import_folder(folder, tmp_path)
    assert {"model.end_threshold=1.5", "model.max_attention_shift=60"} <= {*found.overrides}
    assert "model.coverage_threshold=0.1" in found.overrides
    assert found.search.fusion == ("decode.lm_weight=0.5", "decode.lm_temperature=1.25")


def test_what_of_a_search_is_not_imported_is_named(tmp_path, capsys):
    assert import_folder(golden_folder(), tmp_path).search.left_out == ()
    folder = broken(
        tmp_path,
        ("        rnnlm: !ref <lm_weight>", "        kenlm: 0.3"),
        ("RNNLM.RNNLM", "other.GatedLM"),
    )
    assert main(["import", str(folder), "--to", str(tmp_path / "own")]) == 0
    assert "Not imported: a GatedLM, kenlm=0.3. Hypotheses may" in capsys.readouterr().out


def test_limits_by_the_frames_of_each_utterance_are_imported_and_hold_alone_and_in_any_batch(tmp_path):
    changes = ("min_decode_ratio: 0.0", "min_decode_ratio: 0.25"), ("max_decode_ratio: 1.0", "max_decode_ratio: 0.3")
    found = import_folder(broken(tmp_path, *changes), tmp_path)
    assert {"model.min_decode_ratio=0.25", "model.max_decode_ratio=0.3"} <= {*found.overrides}
    assert found.search.left_out == () and "decode_ratio" not in str(import_folder(golden_folder(), tmp_path).overrides)
    for limits in ({"max_decode_ratio": 0.1}, {"min_decode_ratio": 0.25, "max_decode_ratio": 0.3}):
        alone = {number: limited([number], limits)[0] for number in range(4)}
        assert dict(zip((3, 1, 0, 2), limited([3, 1, 0, 2], limits), strict=True)) == alone
        for number, tokens_found in alone.items():
            frames = golden().expected[number]["encoder_frames"]
            least, most = (int(limits.get(name, 0) * frames) for name in ("min_decode_ratio", "max_decode_ratio"))
            assert least <= len(tokens_found) <= most


@torch.no_grad()
def limited(numbers, limits):
    model = golden().built.model
    model.rules = rules_of(AedConfig(weights="x", **USUAL, **limits))
    return [best.tokens for (best,) in tokens.beam_search(model.scorer(golden().batch(numbers)), 4)]


def test_no_search_has_more_least_than_most_tokens():
    with pytest.raises(ValueError, match="`min_decode_ratio` is above `max_decode_ratio`"):
        AedConfig(weights="x", min_decode_ratio=0.5, max_decode_ratio=0.4)


def with_other_ends(tmp_path):
    """The golden folder with the tokens 0 and 2 swapped, so that 2 ends texts; 90, which is in none, begins them."""
    folder = broken(tmp_path, ("\nbos_index: 0\n", "\nbos_index: 90\n"), ("\neos_index: 0\n", "\neos_index: 2\n"))
    embeddings = ("1.Embedding.weight", "embedding.Embedding.weight")
    for name, swapped in (
        ("asr", ("1.Embedding.weight", "4.w.weight", "4.w.bias")),
        ("lm", ("embedding.Embedding.weight", "out.w.weight", "out.w.bias")),
    ):
        tensors = dict(read_tensors(folder / f"{name}.ckpt"))
        for each in swapped:
            own = tensors[each].clone()
            own[[0, 2]] = tensors[each][[2, 0]]
            if each in embeddings:
                own[90] = tensors[each][0]
            tensors[each] = own
        (folder / f"{name}.ckpt").chmod(0o600)
        torch.save(tensors, folder / f"{name}.ckpt")
    return folder


# What follows each layer between two: its weight and bias, numbered as in SpeechBrain, and as in a plain encoder
NEXT = {
    0: [(f"0.6.rnn.{{}}_ih_l0{way}", f"0.RNN.rnn.{{}}_ih_l1{way}") for way in ("", "_reverse")],
    1: [("0.DNN.block_0.linear.w.{}", "0.DNN.block_0.linear.w.{}")],
}


def with_projections(plain):
    """The tensors with a linear layer after each of the two LSTM layers, and plain ones that come to the same."""
    torch.manual_seed(6)
    projected = {re.sub(r"RNN\.rnn\.(\w+)_l0", r"3.rnn.\1_l0", name): each for name, each in plain.items()}
    projected = {re.sub(r"RNN\.rnn\.(\w+)_l1", r"6.rnn.\1_l0", name): each for name, each in projected.items()}
    for layer, following in NEXT.items():
        weight, bias = torch.randn(32, 64) / 8, torch.randn(32)
        projected |= {f"0.{4 + 3 * layer}.w.weight": weight, f"0.{4 + 3 * layer}.w.bias": bias}
        for theirs, own in following:
            narrow = plain[own.format("weight")][:, :32].clone()
            projected[theirs.format("weight")] = narrow
            plain = {
                **plain,
                own.format("weight"): narrow @ weight,
                own.format("bias"): plain[own.format("bias")] + narrow @ bias,
            }
    return projected, plain


@torch.no_grad()
def test_linear_layers_between_those_of_the_lstm_are_imported(tmp_path):
    frames = []
    for number, tensors in enumerate(with_projections(read_tensors(golden_folder() / "asr.ckpt"))):
        folder = broken(tmp_path / str(number), ("use_rnnp: False", f"use_rnnp: {number == 0}"))
        (folder / "asr.ckpt").chmod(0o600)
        torch.save(tensors, folder / "asr.ckpt")
        renamed = dict(import_folder(folder, tmp_path).tensors)
        built = FAMILY.build(AedConfig(weights="x"), Text(), tmp_path)
        built.module.load_state_dict(renamed)
        frames.append(built.module.eval().encode(golden().batch([2]))[0])
    torch.testing.assert_close(*frames, atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_text_may_begin_and_end_with_tokens_of_its_own(tmp_path):
    folder, assets = with_other_ends(tmp_path), tmp_path / "assets"
    assets.mkdir()
    tensors, config = import_folder(folder, assets).tensors, AedConfig(weights="x", **USUAL, coverage=1.5)
    built = FAMILY.build(config, Text(), assets)
    built.module.load_state_dict(dict(tensors))
    tensors = import_lm(folder, assets).tensors
    lm = LM.build(LmConfig(tokens="own"), Text(), assets).module
    lm.load_state_dict(tensors)
    fusion = Fusion(FusedLm(lm.eval().net, temperature=1.25), 0.5)
    found = tokens.beam_search(built.module.eval().scorer(golden().batch([0, 1, 2, 3])), 4, fusion=fusion)
    swap = {0: 2, 2: 0}
    expected = [each["decode"]["beam4_lm0.5_coverage1.5"]["ids"] for each in golden().expected]
    assert [[swap.get(token, token) for token in best.tokens] for (best,) in found] == expected
    target = built.codec.target(Utterance("a", None, 1.0, text="the"))
    assert (target[0], target[-1], built.codec.begin) == (90, 2, (90,))


TRANSFORMER_LM = """\
lm_model: !new:speechbrain.lobes.models.transformer.TransformerLM.TransformerLM
    vocab: !ref <output_neurons>
    d_model: 16
    nhead: 2
    num_encoder_layers: 2
    d_ffn: 24
    activation: !name:torch.nn.GELU
tokenizer:"""


def test_a_transformer_language_model_is_imported_and_fused_with_its_weight_and_temperature(tmp_path, capsys):
    folder = with_other_ends(tmp_path)
    text = (folder / "hyperparams.yaml").read_text()
    text = re.sub(r"lm_model: !new.*?tokenizer:", TRANSFORMER_LM, text, flags=re.DOTALL)
    text = text.replace("RNNLMScorer", "TransformerLMScorer").replace("        rnnlm: ", "        transformerlm: ")
    (folder / "hyperparams.yaml").write_text(text)
    net = TransformerLm(
        TransformerLmShape(tokens=96, width=16, heads=2, layers=2, feed_forward=24, is_output_deep=True)
    )
    torch.save(dict(as_speechbrain(net.state_dict())), folder / "lm.ckpt")
    own = tmp_path / "own"
    assert main(["import", str(folder), "--to", str(own)]) == 0
    printed = capsys.readouterr().out
    assert f"decode.lm={own / 'lm'} decode.lm_weight=0.5 decode.lm_temperature=1.25" in printed
    assert "Not imported" not in printed
    recording = str(golden_folder() / golden().expected[1]["file"])
    words = [f"decode.lm={own / 'lm'}", "decode.lm_weight=0.5", "--nbest", "2", "--json"]
    assert main(["transcribe", str(own), recording, *words]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert "lm" in found["nbest"][0]["parts"]


def as_speechbrain(tensors):
    """Our tensors under SpeechBrain's names."""
    layer = r"layers\.(\d+)\."
    for number in {name.split(".")[1] for name in tensors if name.startswith("layers.")}:
        for part in ("weight", "bias"):
            joined = [tensors.pop(f"layers.{number}.{each}_proj.{part}") for each in "qkv"]
            yield f"encoder.layers.{number}.self_att.att.in_proj_{part}", torch.cat(joined)
    for name, tensor in tensors.items():
        for ours, theirs in (
            (r"^embedding\.", "custom_src_module.emb.Embedding."),
            (rf"^{layer}attention_norm\.", r"encoder.layers.\1.norm1.norm."),
            (rf"^{layer}norm\.", r"encoder.layers.\1.norm2.norm."),
            (rf"^{layer}out_proj\.", r"encoder.layers.\1.self_att.att.out_proj."),
            (rf"^{layer}fc1\.", r"encoder.layers.\1.pos_ffn.ffn.0."),
            (rf"^{layer}fc2\.", r"encoder.layers.\1.pos_ffn.ffn.3."),
            (r"^norm\.", "encoder.norm.norm."),
            (r"^before_output\.0\.", "output_proj.layers.0.w."),
            (r"^before_output\.1\.", "output_proj.layers.1.norm."),
            (r"^output\.", "output_proj.layers.2.w."),
        ):
            name = re.sub(ours, theirs, name)
        yield name, tensor


def trained(tmp_path):
    """A run's folder as SpeechBrain writes it: aliases for references, checkpoints, and what it began with."""
    objects = re.findall(r"^(\w+): !(?:new|name):", (golden_folder() / "hyperparams.yaml").read_text(), re.MULTILINE)
    named = [(f"\n{key}: !", f"\n{key}: &{key} !") for key in objects]
    folder = broken(tmp_path, *named)
    text = re.sub("!ref <(" + "|".join(objects) + ")>", r"*\1", (folder / "hyperparams.yaml").read_text())
    valid = "valid_search: !new:speechbrain.decoders.S2SRNNBeamSearcher\n    linear: *seq_lin\n    beam_size: 2\n"
    text = text.replace("decoder: &decoder", f"{valid}test_search: &decoder").replace(
        "        normalizer: *normalizer\n", ""
    )
    saved = "checkpointer: !new:speechbrain.utils.checkpoints.Checkpointer\n    checkpoints_dir: results/1/save\n"
    recovered = "    recoverables:\n        model: *asr_model\n        normalizer: *normalizer\n"
    (folder / "hyperparams.yaml").write_text(text + saved + recovered)
    for name, rate in (("CKPT+2024-05-01+00", 30.5), ("CKPT+2024-05-02+00", 12.0), ("CKPT+2024-05-03+00", 14.0)):
        checkpoint = folder / "save" / name
        checkpoint.mkdir(parents=True)
        (checkpoint / "CKPT.yaml").write_text(f"# yamllint disable\nWER: {rate}\nend-of-epoch: true\nunixtime: 1.5\n")
        for file, own in (("asr", "model"), ("normalizer", "normalizer")):
            shutil.copyfile(golden_folder() / f"{file}.ckpt", checkpoint / f"{own}.ckpt")
            if rate != 12.0:
                (checkpoint / f"{own}.ckpt").write_bytes(b"another epoch")
    (folder / "normalizer.ckpt").unlink()
    (folder / "asr.ckpt").write_bytes(b"what training began with")
    return folder


def test_a_runs_folder_gives_the_best_checkpoint_with_the_search_for_the_test_set(tmp_path):
    found, expected = (import_folder(folder, tmp_path) for folder in (trained(tmp_path), golden_folder()))
    assert found.overrides == expected.overrides and found.search == expected.search
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(tensor.equal(expected.tensors[name]) for name, tensor in found.tensors.items())
    assert (
        import_lm(tmp_path / "speechbrain", tmp_path).tensors.keys()
        == import_lm(golden_folder(), tmp_path).tensors.keys()
    )


@pytest.mark.parametrize("name", ["asr.ckpt", "normalizer.ckpt", "tokenizer.ckpt"])
def test_a_clone_without_git_lfs_and_a_part_that_is_not_there_are_named(name, tmp_path):
    folder = broken(tmp_path)
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n")
    with pytest.raises(ModelError, match=f"{name} is a git-lfs pointer, not the file. Run: git lfs pull"):
        import_folder(folder, tmp_path)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name} is missing: the pretrainer of hyperparams.yaml names it"):
        import_folder(folder, tmp_path)


def test_each_part_comes_from_its_own_source(tmp_path, monkeypatch):
    """The recognizer in the folder, the tokenizer at a URL, the language model on the Hub."""
    monkeypatch.setenv("ATTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    hub, files = Hub(), tmp_path / "files"
    hub.put("org/rnnlm", {"lm.ckpt": (golden_folder() / "lm.ckpt").read_bytes()})
    files.mkdir()
    with serve_hub(hub) as endpoint, serving(files, Behavior()) as url:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        places = {"tokenizer": f"{url}/unigram.model", "asr": "save/asr.ckpt", "lm": "!ref <hub>/lm.ckpt"}
        paths = "".join(f"        {name}: {place}\n" for name, place in places.items())
        hub_id = ("n_mels: 40\n", "n_mels: 40\nhub: org/rnnlm\n")
        folder = broken(tmp_path, ("    loadables:\n", f"    paths:\n{paths}    loadables:\n"), hub_id)
        (folder / "save").mkdir()
        (folder / "asr.ckpt").rename(folder / "save/asr.ckpt")
        (folder / "tokenizer.ckpt").rename(files / "unigram.model")
        for name in ("tokenizer.ckpt", "lm.ckpt"):
            (folder / name).write_text("a file of the same name that is not meant")
        assert main(["import", str(folder), "--to", str(tmp_path / "own")]) == 0
    assert main(["import", str(golden_folder()), "--to", str(tmp_path / "plain")]) == 0
    for name in ("model.safetensors", "lm/model.safetensors", "assets/tokenizer.model", "lm/assets/tokenizer.model"):
        assert (tmp_path / "own" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert not any(path.is_symlink() for path in (tmp_path / "own").rglob("*"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "s3://bucket/lm.ckpt"])
def test_no_path_leads_out_of_the_folder_and_a_copy_in_it_is_used(tmp_path, path):
    folder = broken(tmp_path, ("    loadables:\n", f"    paths:\n        lm: {path}\n    loadables:\n"))
    (folder / "lm.ckpt").rename(tmp_path / "lm.ckpt")
    with pytest.raises(ModelError, match="Copy the file into the folder and name it lm.ckpt"):
        import_folder(folder, tmp_path)
    (tmp_path / "lm.ckpt").rename(folder / "lm.ckpt")  # as the message says
    assert import_lm(folder, tmp_path).tensors


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            "speechbrain.lobes.models.huggingface_transformers.wav2vec2.Wav2Vec2",
            "family: ssl, upstream: wav2vec2, weights: hf://org/model",
        ),
        ("speechbrain.lobes.models.huggingface_transformers.whisper.Whisper", "attune import hf://org/model"),
        (
            "speechbrain.lobes.models.transformer.TransformerASR.TransformerASR",
            "Its Transformer layers are not supported",
        ),
    ],
)
def test_other_models_of_speechbrain_are_refused_with_the_reason(tmp_path, kind, reason):
    folder = broken(tmp_path, ("n_mels: 40\n", f"n_mels: 40\nwhole: !new:{kind}\n    source: org/model\n"))
    with pytest.raises(ModelError, match=reason):
        import_folder(folder, tmp_path)


# As asr-wav2vec2-commonvoice-en and asr-whisper-large-v2-commonvoice-fr are published, shortened
WAV2VEC2 = """\
wav2vec2_hub: HUB
output_neurons: 1000
activation: !name:torch.nn.LeakyReLU
enc: !new:speechbrain.nnet.containers.Sequential
   input_shape: [null, null, 1024]
   linear1: !name:speechbrain.nnet.linear.Linear
      n_neurons: 1024
wav2vec2: !new:speechbrain.lobes.models.huggingface_transformers.wav2vec2.Wav2Vec2
   source: !ref <wav2vec2_hub>
   output_norm: True
   save_path: wav2vec2_checkpoint
ctc_lin: !new:speechbrain.nnet.linear.Linear
   input_size: 1024
   n_neurons: !ref <output_neurons>
tokenizer: !new:sentencepiece.SentencePieceProcessor
asr_model: !new:torch.nn.ModuleList
   - [!ref <enc>, !ref <ctc_lin>]
encoder: !new:speechbrain.nnet.containers.LengthsCapableSequential
   wav2vec2: !ref <wav2vec2>
   enc: !ref <enc>
   ctc_lin: !ref <ctc_lin>
decoding_function: !name:speechbrain.decoders.ctc_greedy_decode
   blank_id: 0
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
   loadables:
      wav2vec2: !ref <wav2vec2>
      asr: !ref <asr_model>
      tokenizer: !ref <tokenizer>
"""
WHISPER = """\
whisper_hub: HUB
language: french
whisper: !new:speechbrain.lobes.models.huggingface_transformers.whisper.Whisper
    source: !ref <whisper_hub>
    encoder_only: False
decoder: !new:speechbrain.decoders.seq2seq.S2SWhisperGreedySearcher
    model: !ref <whisper>
    max_decode_ratio: 1.0
modules:
    whisper: !ref <whisper>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        whisper: !ref <whisper>
"""


@pytest.mark.parametrize(
    ("published", "hub", "advice"),
    [
        (
            WAV2VEC2,
            "facebook/wav2vec2-large-lv60",
            "{family: ssl, upstream: wav2vec2, weights: hf://facebook/wav2vec2-large-lv60}",
        ),
        (WAV2VEC2, "!PLACEHOLDER", "{family: ssl, upstream: wav2vec2, weights: hf://ORG/NAME}"),
        (WHISPER, "openai/whisper-large-v2", "attune import hf://openai/whisper-large-v2 --to MODEL"),
    ],
)
def test_published_folders_of_wav2vec2_and_whisper_are_refused_with_what_to_do(
    tmp_path, capsys, published, hub, advice
):
    (tmp_path / "hyperparams.yaml").write_text(published.replace("HUB", hub))
    assert main(["import", str(tmp_path), "--to", str(tmp_path / "own")]) == 2
    assert advice in capsys.readouterr().err
    assert not (tmp_path / "own").exists()


def test_a_checkpoint_whose_list_of_members_is_damaged_is_named(tmp_path):
    path = tmp_path / "asr.ckpt"
    torch.save({"a": torch.ones(4)}, path)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02")] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"Cannot read .*asr\.ckpt as a checkpoint: Bad magic number"):
        read_tensors(path)
