"""Phrases gain their bonus where they are complete, and leave no trace where they are not; in every beam."""

import itertools
import random
from dataclasses import replace

import pytest
import torch

from attune.decoding import ctc
from attune.decoding._phrase_tree import TokenTexts, _byte_alphabet
from attune.decoding.fusion import Fusion
from attune.decoding.phrases import PhraseBook
from attune.decoding.search import Search, search
from attune.errors import ModelError
from attune.types import CtcScorer

from toy.language_models import random_bigrams

LETTERS = ("<blank>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz")
PIECES = (
    "<unk>",
    "▁new",
    "▁ne",
    "w",
    "▁yo",
    "rk",
    "▁york",
    "er",
    "▁",
    "n",
    "e",
    "y",
    "o",
    "r",
    "k",
    "▁New",
    "s",
    "</s>",
)
CPU = torch.device("cpu")


def booster(pieces, phrases, bonus=1.0, own=((),)):
    return PhraseBook(TokenTexts(pieces), bonus, tuple(phrases)).booster(own, CPU)


def gain(boosted, tokens, end=None):
    """What a whole hypothesis gains."""
    (parts,) = Fusion(None, phrases=boosted).parts([tokens], end)
    return parts["phrases"]


def ids(pieces, *written):
    return [pieces.index(piece) for piece in written]


def test_a_complete_phrase_gains_its_bonus_in_any_tokenization_and_case():
    boosted = booster(PIECES, ["New York"], 0.5)
    for written in (
        ["▁new", "▁york"],
        ["▁ne", "w", "▁yo", "rk"],
        ["▁New", "▁york"],
        ["▁", "n", "e", "w", "▁yo", "r", "k"],
    ):
        assert gain(boosted, ids(PIECES, *written)) == pytest.approx(7 * 0.5), written
        assert gain(boosted, ids(PIECES, *written), PIECES.index("</s>")) == pytest.approx(7 * 0.5)


def test_what_breaks_off_or_goes_on_as_another_word_gains_nothing():
    boosted = booster(PIECES, ["new york"])
    for written in (["▁new"], ["▁new", "▁yo"], ["▁new", "▁york", "er"], ["w", "▁york"], ["n", "▁new", "▁new", "s"], []):
        assert gain(boosted, ids(PIECES, *written)) == pytest.approx(0.0), written


def test_a_phrase_counts_once_and_others_beside_it():
    boosted = booster(PIECES, ["york", "new york", "new"])
    assert gain(boosted, ids(PIECES, "▁york", "▁york", "▁york")) == pytest.approx(4.0)
    assert gain(boosted, ids(PIECES, "▁new", "▁york")) == pytest.approx(3 + 4 + 7)


def occurrences(text, phrases):
    words = text.split()
    return sum(
        any(words[place : place + len(phrase.split())] == phrase.split() for place in range(len(words)))
        for phrase in phrases
    )


def test_any_text_gains_the_sum_of_the_phrases_in_it():
    rng = random.Random(3)
    phrases = ["ab", "ab a", "a b", "b ab", "abab"]
    boosted = booster(("<blank>", "<unk>", "▁", "a", "b", "ab", "▁a", "▁ab"), phrases)
    worth = {phrase: len(phrase.replace(" ", "")) for phrase in phrases}
    for _ in range(300):
        tokens = [rng.randrange(2, 8) for _ in range(rng.randrange(9))]
        text = "".join(("", "", " ", "a", "b", "ab", " a", " ab")[token] for token in tokens)
        expected = sum(worth[phrase] for phrase in phrases if occurrences(text, [phrase]))
        if "  " not in text:
            assert gain(boosted, tokens) == pytest.approx(expected), text


def test_each_utterance_has_its_own_phrases():
    boosted = booster(LETTERS, ["ab"], own=((), ("cd",), ("cd", "ab")))
    ab, cd = ([3, 4], [5, 6])
    gains = [[gain(boosted.of(torch.tensor([row])), tokens) for tokens in (ab, cd)] for row in range(3)]
    assert gains == [[2.0, 0.0], [2.0, 2.0], [2.0, 2.0]]
    assert booster(LETTERS, [], own=((), ())) is None


@pytest.mark.parametrize("phrase", ["łódź", "a1"])
def test_a_phrase_that_the_tokens_cannot_write_is_refused(phrase):
    with pytest.raises(ModelError, match="characters that this model's tokens do not have"):
        booster(LETTERS, [phrase])
    with pytest.raises(ModelError, match="'  ' is empty"):
        booster(LETTERS, ["  "])


def test_scripts_without_spaces_have_phrases_anywhere():
    pieces = ("<blank>", "東", "京", "は", "大")
    assert gain(booster(pieces, ["東京"]), [4, 1, 2, 3]) == pytest.approx(2.0)


def test_overlapping_phrases_of_such_scripts_gain_each_and_a_letter_after_them_ends_a_word():
    rng, letters, unspaced = random.Random(5), "北京大学ab+", "北京大学"
    pieces = ("<blank>", "<unk>", "▁", *letters, "ab", "▁a", "▁北")
    phrases = ["北京", "京大", "北京大学", "学", "a学", "大ab", "b+", "ba"]
    boosted = booster(pieces, phrases)

    def is_break(letter):
        return not letter.isalnum() or letter in unspaced

    def is_in(phrase, text):
        places = (at for at in range(len(text)) if text.startswith(phrase, at))
        around = ((text[:at], text[at + len(phrase) :]) for at in places)
        return any(
            (not before or is_break(before[-1]) or phrase[0] in unspaced)
            and (not after or is_break(after[0]) or is_break(phrase[-1]))
            for before, after in around
        )

    for _ in range(300):
        tokens = [rng.randrange(2, len(pieces)) for _ in range(rng.randrange(9))]
        text = "".join(pieces[token].replace("▁", " ") for token in tokens)
        expected = sum(len(phrase) for phrase in phrases if is_in(phrase, text))
        assert gain(boosted, tokens) == pytest.approx(expected), text


def test_phrases_begin_after_characters_that_tokens_have_in_parts():
    piece_of = {byte: piece for piece, byte in _byte_alphabet().items()}
    first, other = "東".encode(), "北".encode()
    parts = (first[:2], first[2:], "京".encode(), other[:1], other[1:], b" a", b" " + first[:2])
    boosted = booster(tuple("".join(piece_of[byte] for byte in part) for part in parts), ["東京"])
    east, end, capital, north, rest, letter, spaced = range(7)
    for written in ([east, end, capital], [north, rest, east, end, capital], [letter, east, end, capital, north, rest]):
        assert gain(boosted, written) == pytest.approx(2.0), written
    assert gain(boosted, [letter, spaced, end, capital]) == pytest.approx(2.0)
    assert gain(boosted, [east, end, north, rest]) == pytest.approx(0.0)


def test_a_whole_page_as_a_phrase_is_read_at_once_and_tables_are_kept_for_the_next_batch():
    page = " ".join(["to be or not to be"] * 1000)
    book = PhraseBook(TokenTexts(LETTERS), 1.0, (page, "to be"))
    first = book.booster(((),), CPU)
    assert gain(first, [LETTERS.index(letter) for letter in ("t", "o", "▁", "b", "e")]) == pytest.approx(4.0)
    assert book.booster(((), ()), CPU).tables is first.tables
    assert book.booster((("or",),), CPU).tables is not first.tables


def test_byte_level_tokens_are_read_as_what_they_write():
    pieces = ("Ġcaf", "Ã©", "ĠCaf", "s", "</s>")
    boosted = booster(pieces, ["Café"])
    assert gain(boosted, [0, 1]) == gain(boosted, [2, 1]) == pytest.approx(4.0)
    assert gain(boosted, [0, 1, 3]) == pytest.approx(0.0)


def spelled(text, confusions, frames=2):
    """Frames of a CTC model that spell a text; `confusions` share the probability of the letter at a place."""
    rows = []
    for place, letter in enumerate(text):
        row = torch.full((len(LETTERS),), 1e-4)
        row[LETTERS.index("▁" if letter == " " else letter)] = 0.6
        for other in confusions.get(place, ""):
            row[LETTERS.index(other)] = 0.8
        rows += [row] * frames + [torch.eye(len(LETTERS))[0] + 1e-4]
    return torch.stack(rows).log().log_softmax(-1)


def text_of(hypothesis):
    return "".join(LETTERS[token] for token in hypothesis.tokens).replace("▁", " ")


def scorer_of(*rows):
    lengths = torch.tensor([len(row) for row in rows])
    return CtcScorer(torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True), lengths)


def test_a_ctc_beam_finds_a_name_that_sounds_like_another_word():
    call = spelled("call smyth now", {7: "i"})
    other = spelled("a smith met a myth", {})
    scorer = scorer_of(call, other)
    plain = [text_of(best) for (best,) in ctc.beam_search(scorer, 8)]
    assert plain == ["call smith now", "a smith met a myth"]
    book = PhraseBook(TokenTexts(LETTERS), 1.0, ("Smyth",))  # capitals are no letters of this model
    fusion = Fusion(None, phrases=book.booster(((), ()), CPU))
    boosted = [best for (best,) in ctc.beam_search(scorer, 8, fusion)]
    assert [text_of(each) for each in boosted] == ["call smyth now", "a smith met a myth"]
    ((unboosted,),) = ctc.beam_search(scorer_of(other), 8)
    assert boosted[1].score == pytest.approx(unboosted.score, abs=0.01)  # some other alignments were kept


def test_no_bonus_finds_a_phrase_that_the_audio_speaks_against():
    """Others add to the WER of texts without any phrase, the more of them there are."""
    scorer = scorer_of(spelled("eight men met anna", {}), spelled("call smyth now", {7: "i"}))
    phrases = ("eighty", "eighth", "hannah", "johanna", "mentor", "amen", "Smyth", "caller", "smythe", "known", "snow")
    fusion = Fusion(None, phrases=PhraseBook(TokenTexts(LETTERS), 5.0, phrases).booster(((), ()), CPU))
    found = [text_of(best) for (best,) in ctc.beam_search(scorer, 16, fusion)]
    assert found == ["eight men met anna", "call smyth now"]


def test_a_letter_that_was_not_there_yet_may_come_later():
    """A beam that is not full must not keep a prefix that nothing may join."""
    silence = torch.full((2, len(LETTERS)), 1e-6)
    silence[:, 0] = 1.0
    scorer = scorer_of(torch.cat([silence.log().log_softmax(-1), spelled("anna", {})]))
    fusion = Fusion(None, phrases=PhraseBook(TokenTexts(LETTERS), 1.0, ("anna",)).booster(((),), CPU))
    ((found,),) = ctc.beam_search(scorer, 64, fusion)
    assert text_of(found) == "anna"


def test_a_token_of_a_phrase_must_be_near_the_best_one():
    boosted = booster(PIECES, ["new york"])
    log_probs = torch.zeros(1, len(PIECES)).index_fill(1, torch.tensor([PIECES.index("▁new")]), -3.9)
    gains = boosted.bonuses(boosted.start(1), log_probs)[0]
    assert gains[PIECES.index("▁new")] > 0 and gains[PIECES.index("▁york")] == 0
    gains = boosted.bonuses(boosted.start(1), log_probs * 1.1)[0]
    assert gains[PIECES.index("▁new")] == 0 and gains[PIECES.index("▁ne")] > 0
    token, emitted = torch.tensor([PIECES.index("▁new")]), torch.ones(1, dtype=torch.bool)
    for gap, begun in ((3.9, True), (4.1, False)):
        rows = boosted.advance(boosted.start(1), token, emitted, torch.tensor([gap]))
        assert bool(boosted.total(rows) > 0) == begun
    refusing = replace(boosted, refuses_far=True)  # as a CTC beam does
    gains = refusing.bonuses(refusing.start(1), log_probs * 1.1)[0]
    assert gains[PIECES.index("▁new")] == -torch.inf and gains[PIECES.index("▁ne")] > 0


def test_the_total_is_what_was_gained_token_by_token():
    torch.manual_seed(5)
    boosted = booster(PIECES, ["new york", "york", "newer"], 2.0, ((),) * 64)
    rows, emitted = boosted.start(64), torch.ones(64, dtype=torch.bool)
    summed = torch.zeros(64)
    for _ in range(40):
        log_probs = torch.randn(64, len(PIECES)).mul(2.5).log_softmax(-1)
        tokens = torch.randint(len(PIECES), (64,))
        summed += boosted.bonuses(rows, log_probs).gather(1, tokens[:, None])[:, 0]
        gaps = log_probs.amax(1) - log_probs.gather(1, tokens[:, None])[:, 0]
        rows = boosted.advance(rows, tokens, emitted, gaps)
        assert boosted.total(rows).tolist() == pytest.approx(summed.tolist(), abs=1e-4)
    assert len(set(summed.tolist())) > 10


def test_no_bonus_makes_a_phrase_loop():
    book = PhraseBook(TokenTexts(LETTERS), 3.0, ("no",))
    fusion = Fusion(None, phrases=book.booster(((),), CPU))
    ((found,),) = ctc.beam_search(scorer_of(spelled("no no", {})), 16, fusion)
    assert text_of(found).split() == ["no", "no"]
    silence = torch.full((40, len(LETTERS)), -8.0)
    silence[:, 0] = 0.0
    ((found,),) = ctc.beam_search(scorer_of(silence.log_softmax(-1)), 16, fusion)
    assert text_of(found).split().count("no") <= 1


def test_batches_of_a_fused_beam_are_the_utterances_alone():
    torch.manual_seed(1)
    rows = [torch.randn(frames, len(LETTERS)).mul(2).log_softmax(-1) for frames in (9, 20, 14, 20)]
    own = (("ab",), (), ("cab", "dab"), ("x",))
    book = PhraseBook(TokenTexts(LETTERS), 2.0, ("zz",))
    lm = random_bigrams(len(LETTERS))
    together = ctc.beam_search(scorer_of(*rows), 6, Fusion(lm, 0.3, phrases=book.booster(own, CPU)), nbest=3)
    alone = [
        ctc.beam_search(scorer_of(row), 6, Fusion(lm, 0.3, phrases=book.booster((each,), CPU)), nbest=3)[0]
        for row, each in zip(rows, own, strict=True)
    ]
    assert together == alone


def test_the_ranks_of_a_beam_are_the_sums_of_its_parts():
    torch.manual_seed(2)
    scorer = scorer_of(torch.randn(6, 5).log_softmax(-1))
    pieces = ("<blank>", "▁", "a", "b", "c")
    fusion = Fusion(random_bigrams(5), 0.4, phrases=booster(pieces, ["ab", "c"]))
    (best,) = search(scorer, Search("beam", beam=400, nbest=400, lm="lm", fusion=fusion))
    totals = [sum(dict(each.parts).values()) for each in (best, *best.nbest)]
    assert [*dict(best.parts)] == ["acoustic", "lm", "phrases"] and len(totals) > 100
    assert all(before >= after - 1e-5 for before, after in itertools.pairwise(totals))


def test_a_phrase_gains_what_it_needed_and_hardly_more():
    """So one more phrase never makes a text better than the text that the model would write."""
    boosted = replace(booster(PIECES, ["new york"], 5.0), reach=torch.inf)
    for gap, gained in ((0.0, 0.5), (1.5, 3.5), (100.0, 35.0)):  # two tokens, and no more than the bonus
        rows = boosted.start(1)
        for token in ids(PIECES, "▁new", "▁york"):
            rows = boosted.advance(rows, torch.tensor([token]), torch.ones(1, dtype=torch.bool), torch.tensor([gap]))
        assert float(boosted.finish(rows)) == pytest.approx(gained - 35.0)  # the rest of the bonus is taken back


def test_a_phrase_that_was_had_is_worth_nothing_on_the_way_either():
    boosted = booster(PIECES, ["york", "new york"])
    rows = boosted.start(1)
    worth = []
    for token in ids(PIECES, "▁york", "▁york", "▁york"):
        worth.append(float(boosted.bonuses(rows, torch.zeros(1, len(PIECES)))[0, token]))
        rows = boosted.advance(rows, torch.tensor([token]), torch.ones(1, dtype=torch.bool), torch.full((1,), 3.9))
    assert worth == pytest.approx([4.0, 0.0, 0.0])  # a loop is never ahead of the texts that have ended
    assert float(boosted.finish(rows)) == pytest.approx(0.0)


def test_a_match_that_begins_anew_owes_nothing_to_what_was_before():
    boosted = booster(PIECES, ["york"], 5.0)
    rows, emitted = boosted.start(1), torch.ones(1, dtype=torch.bool)
    for token, gap in (("▁yo", 3.0), ("▁york", 0.0)):  # the first breaks off
        rows = boosted.advance(rows, torch.tensor(ids(PIECES, token)), emitted, torch.tensor([gap]))
    assert float(boosted.finish(rows) + boosted.total(rows)) == pytest.approx(0.5)


def test_a_bonus_that_is_changed_counts_at_once():
    book = PhraseBook(TokenTexts(PIECES), 1.0, ("york",))
    worths = [gain(replace(book, bonus=bonus).booster(((),), CPU), ids(PIECES, "▁york")) for bonus in (1.0, 3.0)]
    assert worths == pytest.approx([4.0, 12.0])


def test_the_phrases_of_utterances_of_any_length_are_their_own():
    short, long = (spelled(text, {0: "e"}) for text in ("anna", "anna now"))
    for rows, own in (((short, long), (("anna",), ())), ((long, short), ((), ("anna",)))):
        fusion = Fusion(None, phrases=PhraseBook(TokenTexts(LETTERS), 3.0).booster(own, CPU))
        found = [text_of(best).split()[0] for (best,) in ctc.beam_search(scorer_of(*rows), 16, fusion)]
        assert found == ["anna" if each else "enna" for each in own]
