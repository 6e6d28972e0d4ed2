"""Whose tokens a transducer learns, and what becomes of its rows when they change."""

import io

import pytest
import torch
from sentencepiece import SentencePieceTrainer

from attune.errors import ConfigError, DataError
from attune.families._pieces import OwnPieces
from attune.families.transducer import FAMILY, TransducerConfig
from attune.families.transducer.archive import read_archive
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.text.tokenizers.characters import CharacterTokenizer
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer
from attune.types import Utterance

from transducers import golden_folder

TEXTS = [
    "stop",
    "three zero two one",
    "erase f o x k eight",
    "seven one six two four",
    "yes no maybe",
    "ÉLAN FAÇADE WITH CAPITALS",
]
UTTERANCES = [Utterance(str(number), 1.0, text=text) for number, text in enumerate(TEXTS * 3)]


@pytest.fixture(params=["fastconformer", "fastconformer-tdt"])
def nemo(request):
    return golden_folder(request.param) / "model.nemo"


def prepared(folder, config):
    folder.mkdir()
    Transcribe.prepare(config, UTTERANCES, folder)
    return Transcribe(config, folder)


def started(nemo, task, folder, seed=0):
    """A model with the task's tokens, begun with the weights of a .nemo file."""
    config, assets = TransducerConfig(weights=str(nemo), tokens="task"), folder / "assets"
    assets.mkdir(exist_ok=True)
    tensors = FAMILY.importer.read(config, nemo, assets).tensors
    torch.manual_seed(seed)
    model = FAMILY.build(config, task, assets).model
    respelled = FAMILY.vocabulary.remap(model, tensors, folder / "nothing", assets)
    return model, tensors, respelled


@pytest.mark.parametrize("config", [TranscribeConfig(), TranscribeConfig(tokens="unigram", vocabulary=48)])
def test_rows_go_by_their_piece_and_the_blank_and_durations_stay(nemo, tmp_path, config):
    task = prepared(tmp_path / "task", config)
    model, tensors, respelled = started(nemo, task, tmp_path)
    old, new = read_archive(nemo).config["joint"]["vocabulary"], model.pieces
    kept = [piece for piece in new if piece in old]
    assert 5 < len(kept) < len(new)
    assert respelled.note.startswith(f"tokens: {len(kept)} of {len(new)} reuse pretrained embeddings")
    names = ("decoder.prediction.embed.weight", "joint.output.weight", "joint.output.bias")
    assert set(respelled.renewed) == set(names)
    for name in names:
        before, after = tensors[name], respelled.tensors[name]
        assert after.shape == model.state_dict()[name].shape
        for piece in kept:
            assert torch.equal(after[new.index(piece)], before[old.index(piece)])
        assert torch.equal(after[len(new) :], before[len(old) :])  # the blank, and any durations
    assert not respelled.tensors[names[0]][-1].any()
    model.load_state_dict(respelled.tensors)


def test_new_rows_have_the_mean_and_spread_of_the_old_and_the_seed_decides_them(tmp_path):
    nemo = golden_folder("fastconformer") / "model.nemo"
    task = prepared(tmp_path / "task", TranscribeConfig())
    name = "joint.output.weight"
    _, tensors, first = started(nemo, task, tmp_path, seed=1)
    model, _, again = started(nemo, task, tmp_path, seed=1)
    _, _, other = started(nemo, task, tmp_path, seed=2)
    old = read_archive(nemo).config["joint"]["vocabulary"]
    new = [row for row, piece in enumerate(model.pieces) if piece not in old]
    assert torch.equal(first.tensors[name], again.tensors[name])
    assert not torch.equal(first.tensors[name][new], other.tensors[name][new])
    labels = tensors[name][: len(old)]
    z = (first.tensors[name][new] - labels.mean(0)) / labels.std(0)
    assert abs(float(z.mean())) < 0.5 and 0.6 < float(z.std()) < 1.4
    assert torch.allclose(first.tensors["joint.output.bias"][new], tensors["joint.output.bias"][: len(old)].mean())


def test_as_many_other_tokens_never_inherit_rows_by_their_number(tmp_path):
    nemo = golden_folder("fastconformer") / "model.nemo"
    task = prepared(tmp_path / "task", TranscribeConfig(tokens="bpe", vocabulary=64))
    config = TransducerConfig(weights=str(nemo), tokens="task")
    (tmp_path / "assets").mkdir()
    tensors = FAMILY.importer.read(config, nemo, tmp_path / "assets").tensors
    # The same number of tokens, in another order: of the same pieces, every row moves.
    archive = read_archive(nemo)
    backwards = tuple(reversed(archive.config["joint"]["vocabulary"]))
    model = FAMILY.build(config, task, tmp_path / "assets").model
    model.pieces = backwards
    respelled = FAMILY.vocabulary.remap(_Fresh(backwards, tensors), tensors, tmp_path / "nothing", tmp_path / "assets")
    name = "joint.output.weight"
    assert torch.equal(respelled.tensors[name][:96], tensors[name][:96].flip(0))
    assert "96 of 96 reuse" in respelled.note


class _Fresh:
    """A model with these pieces and fresh rows of the same shapes."""

    def __init__(self, pieces, tensors):
        self.pieces, self.tensors = pieces, tensors

    def state_dict(self):
        return {name: torch.randn_like(tensor.float()) for name, tensor in self.tensors.items()}


def test_the_same_tokens_leave_everything_as_it_is(nemo, tmp_path):
    config = TransducerConfig(weights=str(nemo))
    tensors = FAMILY.importer.read(config, nemo, tmp_path).tensors
    model = FAMILY.build(config, Transcribe(TranscribeConfig(), tmp_path), tmp_path).model
    respelled = FAMILY.vocabulary.remap(model, tensors, tmp_path / "nothing", tmp_path)
    assert respelled.tensors is tensors and not respelled.note and not respelled.renewed


def test_own_tokens_spell_no_times(nemo, tmp_path):
    config = TransducerConfig(weights=str(nemo), tokens="own")
    FAMILY.importer.read(config, nemo, tmp_path)
    built = FAMILY.build(config, Transcribe(TranscribeConfig(), tmp_path), tmp_path)
    timed = Utterance("t", 1.0, text="<|0.00|>three zero<|1.00|><|1.20|>two one<|2.00|>")
    assert built.codec.target(timed) == built.codec.target(Utterance("p", 1.0, text="three zero two one"))


def test_own_tokens_need_weights_that_have_some(tmp_path):
    with pytest.raises(ConfigError, match="Set model.tokens=task"):
        FAMILY.build(TransducerConfig(weights="runs/x"), Transcribe(TranscribeConfig(), tmp_path), tmp_path)


def test_weights_that_say_what_they_are_leave_no_choice_of_size(nemo, tmp_path):
    FAMILY.importer.read(TransducerConfig(weights=str(nemo)), nemo, tmp_path)
    task = Transcribe(TranscribeConfig(), tmp_path)
    with pytest.raises(ConfigError, match="Remove model.encoder"):
        FAMILY.build(TransducerConfig(weights="x", encoder="conformer", size="small"), task, tmp_path)


@pytest.mark.parametrize("settings", [{"prediction": "stateless"}, {"durations": (0, 1, 2)}])
def test_weights_that_say_what_they_are_leave_no_choice_of_nets_and_durations(nemo, tmp_path, settings):
    FAMILY.importer.read(TransducerConfig(weights=str(nemo)), nemo, tmp_path)
    with pytest.raises(ConfigError, match="Remove model.encoder, model.size, model.prediction, model.durations and"):
        FAMILY.build(TransducerConfig(weights="x", **settings), Transcribe(TranscribeConfig(), tmp_path), tmp_path)


def test_pieces_are_written_as_sentencepiece_writes_them():
    assert CharacterTokenizer(("a", " ")).pieces == ("<blank>", "<unk>", "a", "▁")
    pieces = SentencePieceTokenizer.learn(TEXTS, "bpe", 64)
    assert pieces.pieces[:2] == ("<blank>", "<unk>") and len(pieces.pieces) == 64


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_tokenizer_without_its_blank_splits_the_same_way_one_number_lower(kind):
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceTokenizer.learn(TEXTS, kind, 46)
    theirs = SentencePieceProcessor(model_proto=pieces.without_blank())
    assert tuple(theirs.id_to_piece(number) for number in range(theirs.get_piece_size())) == pieces.pieces[1:]
    assert theirs.unk_id() == 0 and theirs.pad_id() == -1
    for text in (*TEXTS, "ünknown"):
        assert [number + 1 for number in theirs.encode(text)] == list(pieces.encode(text))
        assert theirs.decode(theirs.encode(text)) == pieces.decode(pieces.encode(text))


def test_a_task_takes_over_the_tokens_of_a_file(tmp_path):
    SentencePieceTokenizer.learn(TEXTS, "bpe", 64).save(tmp_path)
    file = tmp_path / SentencePieceTokenizer.FILE
    config = TranscribeConfig(tokens="bpe", tokenizer=str(file))
    task = prepared(tmp_path / "task", config)
    assert (tmp_path / "task" / SentencePieceTokenizer.FILE).read_bytes() == file.read_bytes()
    assert task.can_reuse(config, tmp_path / "task", UTTERANCES)
    (tmp_path / "other").mkdir()
    SentencePieceTokenizer.learn(TEXTS, "unigram", 46).save(tmp_path / "other")
    assert not task.can_reuse(config, tmp_path / "other", UTTERANCES)
    with pytest.raises(ValueError, match="need `vocabulary` or `tokenizer`"):
        TranscribeConfig(tokens="bpe", tokenizer=str(file), vocabulary=40)


def test_a_task_without_any_text_has_no_tokens(tmp_path):
    with pytest.raises(DataError, match="every transcript is empty"):
        Transcribe.prepare(TranscribeConfig(), [Utterance("a", 1.0, text="")], tmp_path)


def test_pieces_whose_unknown_is_written_as_nothing_are_read_as_they_are(tmp_path):
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["abc abd bca", "cab abc"]), model_writer=model, model_type="char", vocab_size=9,
        unk_surface="", minloglevel=2,
    )  # fmt: skip
    (tmp_path / "tokens.model").write_bytes(model.getvalue())
    pieces = OwnPieces(tmp_path / "tokens.model")
    assert pieces.decode(pieces.encode("abc dab xyz")) == "abc dab"
