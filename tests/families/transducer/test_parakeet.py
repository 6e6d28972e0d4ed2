"""What is written for transformers is loaded by transformers, and says the same."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from attune.decoding.search import Search, search
from attune.errors import ModelError
from attune.families.transducer.archive import read_archive, tokenizer_files
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.parakeet import write_parakeet
from attune.families.transducer.parakeet_tokens import as_tokenizer
from attune.families.transducer.presets import preset
from attune.families.transducer.settings import TransducerConfig
from attune.families.transducer.shape import read_shape
from attune.families.transducer.vocabulary import sentencepiece_of
from attune.text.tokenizers.characters import CharacterTokenizer
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer

from tiny import batch_of
from transducers import golden_folder

TEXTS = ["three zero two one", "erase f o x k eight", "seven one six two four four six seven", "stop", "twenty nine"]
TOKENIZER = SentencePieceTokenizer.learn(TEXTS, "bpe", 40)
PIECES = TOKENIZER.pieces[1:]


def make_model(encoder="fastconformer", **settings):
    torch.manual_seed(2)
    described = preset(TransducerConfig(encoder=encoder, size="dummy", tokens="task", **settings))
    model = TransducerModel(read_shape(described), PIECES, described)
    for name, tensor in model.state_dict().items():
        if "running_var" in name or "running_mean" in name or "pos_bias" in name or "norm" in name:
            tensor.add_(torch.rand_like(tensor.float()).to(tensor.dtype))
    return model.eval()


@pytest.mark.parametrize("durations", [(), (0, 1, 2, 3, 4)])
@torch.no_grad()
def test_transformers_loads_the_folder_and_gives_the_same_frames_and_logits(tmp_path, durations):
    from transformers import ParakeetForRNNT, ParakeetForTDT

    model = make_model(durations=durations)
    write_parakeet(model, TOKENIZER.without_blank(), tmp_path)
    kind = ParakeetForTDT if durations else ParakeetForRNNT
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    theirs.eval()
    rows = [("a", torch.randn(30_000).numpy(), (1, 2, 3)), ("b", torch.randn(17_000).numpy(), (4, 5, 6))]
    batch = batch_of(rows)
    mels, counts = model.preprocessor(batch.audio, batch.lengths)
    frames, lengths = model.encode(batch)
    mask = torch.arange(mels.shape[2])[None] < counts[:, None]
    labels = torch.cat([torch.full((2, 1), len(PIECES)), batch.tokens.ids], dim=1)
    found = theirs(input_features=mels.transpose(1, 2), attention_mask=mask, decoder_input_ids=labels)
    encoded, predicted = model.joint.project(frames, model.decoder.prediction(batch.tokens.ids))
    logits = model.joint.logits(encoded[:, :, None], predicted[:, None])
    for row, length in enumerate(lengths.tolist()):
        assert torch.allclose(found.last_hidden_state[row, :length], frames[row, :length], atol=1e-5)
        assert torch.allclose(found.logits[row, :length], logits[row, :length], atol=1e-4)


@pytest.mark.parametrize("bias", [0.0, 20.0])
@torch.no_grad()
def test_transformers_generates_what_attune_finds_whichever_outputs_are_largest(tmp_path, bias):
    from transformers import ParakeetForTDT

    model = make_model(durations=(0, 1, 2, 3, 4))
    model.joint.output.weight.mul_(3)
    model.joint.output.bias[len(PIECES) + 1 :] += bias  # above every token, and the same durations as before
    write_parakeet(model, TOKENIZER.without_blank(), tmp_path)
    batch = batch_of([("a", torch.randn(30_000, generator=torch.Generator().manual_seed(5)).numpy(), (1,))])
    mels, _ = model.preprocessor(batch.audio, batch.lengths)
    (found,) = search(model.scorer(batch), Search())
    mask = torch.arange(mels.shape[2])[None] < batch.lengths // 160
    theirs = ParakeetForTDT.from_pretrained(tmp_path).eval()
    generated = theirs.generate(input_features=mels.transpose(1, 2), attention_mask=mask, max_new_tokens=200)
    sequence = (generated if isinstance(generated, torch.Tensor) else generated.sequences)[0].tolist()
    assert found.tokens and [token for token in sequence if token != len(PIECES)] == list(found.tokens)


@pytest.mark.parametrize("durations", [(0, 1, 2, 4, 8), (1, 0)])
def test_durations_that_transformers_would_misread_are_refused(tmp_path, durations):
    with pytest.raises(
        ModelError, match=rf"this model has {', '.join(map(str, durations))}\. Other toolkits can load its model\.nemo"
    ):
        write_parakeet(make_model(durations=durations), TOKENIZER.without_blank(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("encoder", ["contextnet", "conformer"])
def test_what_transformers_has_no_format_for_is_refused(tmp_path, encoder):
    with pytest.raises(ModelError, match=r"FastConformer.*model\.nemo"):
        write_parakeet(make_model(encoder), b"", tmp_path / "out")
    assert not Path(tmp_path / "out").exists()


def test_a_prediction_net_of_another_width_is_refused(tmp_path):
    model = make_model()
    model.shape = replace(model.shape, joint=replace(model.shape.joint, width=80))
    with pytest.raises(ModelError, match="72 and 80|64 and 80"):
        write_parakeet(model, TOKENIZER.without_blank(), tmp_path)


def test_norms_and_features_that_transformers_would_replace_are_refused(tmp_path):
    model = make_model()
    shape = model.shape
    unnormalized = replace(shape, front_end=replace(shape.front_end, is_normalized=False))
    layer_norm = replace(shape, encoder=replace(shape.encoder, has_layer_norm=True))
    for model.shape in (unnormalized, layer_norm):
        with pytest.raises(ModelError, match=r"normalized per utterance only.*model\.nemo"):
            write_parakeet(model, TOKENIZER.without_blank(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_characters_are_refused_by_what_transformers_needs(tmp_path):
    CharacterTokenizer.learn(TEXTS).save(tmp_path)
    with pytest.raises(ModelError, match=r"transformers needs SentencePiece tokens\. Train with task\.tokens=bpe"):
        sentencepiece_of(tmp_path, tmp_path)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_transformers_tokenizer_has_the_same_numbers_and_texts(tmp_path, kind):
    from transformers import AutoTokenizer

    pieces = SentencePieceTokenizer.learn(TEXTS, kind, 40 if kind == "bpe" else 32)
    write_parakeet(make_model(), pieces.without_blank(), tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "ParakeetTokenizer" and theirs.pad_token_id == len(pieces.pieces) - 1
    for text in (*TEXTS, "six stop two", "one eight zero"):
        labels = [number - 1 for number in pieces.encode(text)]
        assert theirs.encode(text, add_special_tokens=False) == labels
        assert theirs.decode(labels, group_tokens=False) == text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("rule", ["nmt_nfkc_cf", "nfkc", "identity"])
def test_text_is_normalized_as_sentencepiece_was_told(tmp_path, kind, rule):
    from transformers import AutoTokenizer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, model_type=kind, vocab_size=32, bos_id=-1, eos_id=-1,
        normalization_rule_name=rule, minloglevel=2,
    )  # fmt: skip
    ours = SentencePieceProcessor(model_proto=model.getvalue())
    write_parakeet(make_model(), model.getvalue(), tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, "ＳＴＯＰ", "Stop TWO", " ﬁve  ①\u3000two "):
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(text)


def test_golden_tokenizers_too(tmp_path):
    for name in ("conformer", "fastconformer"):
        archive = read_archive(golden_folder(name) / "model.nemo")
        model = archive.files[tokenizer_files(archive.config)["model_path"]]
        ours, theirs = SentencePieceProcessor(model_proto=model), as_tokenizer(model)
        for text in TEXTS:
            assert theirs.encode(text).ids == ours.encode(text)
