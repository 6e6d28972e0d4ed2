import pytest
import torch

from attune.errors import DataError, ModelError
from attune.families.whisper.labels import UNKNOWN_LANGUAGE, DecoderPrompt, WhisperVocabulary, prefix, sequence
from attune.text.filters import pair_timestamps

from tiny_whisper import real, write_tokenizer

END, START, EN, BE, TRANSLATE, TRANSCRIBE, PREVIOUS, NO_TIMES, ZERO = 256, 257, 258, 259, 262, 263, 265, 267, 268
POSITIONS = 448


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return WhisperVocabulary(
        write_tokenizer(tmp_path_factory.mktemp("tokens") / "tokenizer.json"), is_multilingual=True
    )


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    return WhisperVocabulary(
        write_tokenizer(tmp_path_factory.mktemp("tokens") / "tokenizer.json"), is_multilingual=False
    )


def spelled(vocabulary, text):
    return vocabulary.spelled(text)


def test_a_sequence_says_language_task_and_that_there_are_no_times(vocabulary):
    made = sequence(vocabulary, DecoderPrompt("be", "translate"), POSITIONS, "Ok", 1.0)
    assert made[:4] == (START, BE, TRANSLATE, NO_TIMES)
    assert made[4:] == (*spelled(vocabulary, "Ok"), END)  # a space would be a token of its own, which is suppressed


def test_an_english_only_model_is_told_neither_language_nor_task(english):
    assert sequence(english, DecoderPrompt(None), POSITIONS, "a", 1.0) == (START, NO_TIMES, *spelled(english, "a"), END)
    assert prefix(english, DecoderPrompt("en-US"), POSITIONS) == (START, NO_TIMES)


def test_an_english_only_model_refuses_another_language(english):
    with pytest.raises(DataError, match="English-only Whisper has no language 'be'"):
        prefix(english, DecoderPrompt("be"), POSITIONS)


def test_times_stand_around_the_text(vocabulary):
    made = sequence(vocabulary, DecoderPrompt("en", has_timestamps=True), POSITIONS, "a", 2.7)
    assert made == (START, EN, TRANSCRIBE, ZERO, *spelled(vocabulary, "a"), ZERO + 135, END)


def test_times_written_in_the_text_are_kept(vocabulary):
    told = DecoderPrompt("en", has_timestamps=True)
    made = sequence(vocabulary, told, POSITIONS, "<|0.00|> a<|1.00|><|1.20|> b<|2.00|>", 9.0)
    a, b = spelled(vocabulary, "a"), spelled(vocabulary, "b")
    assert made[3:] == (ZERO, *a, ZERO + 50, ZERO + 60, *b, ZERO + 100, END)


@pytest.mark.parametrize("text", ["", " ", "<|0.00|><|2.70|>"])
def test_where_nothing_is_said_no_time_follows_the_first_as_decoding_has_it(vocabulary, text):
    made = sequence(vocabulary, DecoderPrompt("en", has_timestamps=True), POSITIONS, text, 2.7)
    assert made == (START, EN, TRANSCRIBE, ZERO, END)
    forbid = pair_timestamps(ZERO, END, latest_start=50)
    for step in (3, 4):
        allowed = forbid(torch.zeros(1, 1769), torch.tensor([made[:step]]), torch.tensor([3]))
        assert allowed[0, made[step]] == 0
    assert vocabulary.decode(made) == ""


def test_a_prompt_goes_before_the_one_start(vocabulary):
    made = sequence(vocabulary, DecoderPrompt("en", previous_text=" so far "), POSITIONS, "a", 1.0)
    before = vocabulary.spelled(" so far")
    assert made[: len(before) + 2] == (PREVIOUS, *before, START)
    assert made.count(START) == 1
    assert (
        prefix(vocabulary, DecoderPrompt("en", previous_text="<|0.00|> so far<|1.20|>"), POSITIONS)[: len(before) + 1]
        == made[: len(before) + 1]
    )
    assert (
        prefix(vocabulary, DecoderPrompt("th", previous_text="so far"), POSITIONS)[: len(before) + 1]
        == made[: len(before) + 1]
    )


def test_a_sequence_is_shown_with_all_its_tokens_by_name(vocabulary):
    told = DecoderPrompt("en", has_timestamps=True, previous_text="so")
    made = sequence(vocabulary, told, POSITIONS, "a b", 1.5)
    shown = "<|startofprev|> so<|startoftranscript|><|en|><|transcribe|><|0.00|>a b<|1.50|><|endoftext|>"
    assert vocabulary.written(made) == shown


def test_only_the_end_of_a_long_prompt_is_told(vocabulary):
    told = prefix(vocabulary, DecoderPrompt("en", previous_text="x" * 500 + "y"), POSITIONS)
    assert told.index(START) == 1 + 223
    assert told[223] == spelled(vocabulary, "y")[0]


def test_a_transcript_cannot_smuggle_in_a_special_token(vocabulary):
    made = sequence(vocabulary, DecoderPrompt("en"), POSITIONS, "a <|endoftext|> b", 1.0)
    assert made.count(END) == 1 and made[-1] == END
    assert vocabulary.decode(made) == "a <|endoftext|> b"


def test_a_language_that_is_not_known_is_left_open_for_decoding_and_refused_for_training(vocabulary):
    assert prefix(vocabulary, DecoderPrompt(None), POSITIONS) == (START, UNKNOWN_LANGUAGE, TRANSCRIBE, NO_TIMES)
    with pytest.raises(DataError, match="Unknown language"):
        sequence(vocabulary, DecoderPrompt(None), POSITIONS, "a", 1.0)


def test_a_language_is_found_by_its_locale_and_a_wrong_one_gets_advice(vocabulary):
    assert vocabulary.language("no-NO") == vocabulary.languages["no"]
    assert vocabulary.language("no_NO") == vocabulary.languages["no"]
    with pytest.raises(DataError, match="has no language 'nb'"):
        vocabulary.language("nb")
    with pytest.raises(DataError, match="use a code such as 'en'"):
        vocabulary.language("bel")  # el, Greek, would be no help
    for name in ("belarusian", "Belarusian"):
        with pytest.raises(DataError, match="did you mean 'be'"):
            vocabulary.language(name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<|1.00|> a<|0.50|>", "must rise"),
        ("<|95.00|> a<|97.50|>", "within 2.00 s"),
        ("<|0.00|> a<|1.00|> b<|2.00|>", "needs a timestamp before and after"),
        ("a<|2.00|>", "needs a timestamp before and after"),
    ],
)
def test_times_that_decoding_could_never_say_are_not_learned(vocabulary, text, reason):
    timed = DecoderPrompt("en", has_timestamps=True)
    with pytest.raises(DataError, match=reason):
        sequence(vocabulary, timed, POSITIONS, text, 2.0)
    assert sequence(vocabulary, timed, POSITIONS, "<|0.0|> a<|1|><|1.2|> b<|2.00|>", 2.0)


def test_a_text_that_is_too_long_is_refused_and_the_longest_that_fits_is_not(vocabulary):
    longest = "x" * (POSITIONS - 5)
    assert len(sequence(vocabulary, DecoderPrompt("en"), POSITIONS, longest, 30.0)) == POSITIONS
    with pytest.raises(DataError, match="has 449 tokens; Whisper takes 448"):
        sequence(vocabulary, DecoderPrompt("en"), POSITIONS, longest + "x", 30.0)


def test_reading_leaves_out_what_was_told_and_the_times(vocabulary):
    told = DecoderPrompt("en", has_timestamps=True, previous_text="before")
    assert vocabulary.decode(sequence(vocabulary, told, POSITIONS, "after that", 2.0)) == "after that"


def test_a_tokenizer_of_something_else_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a valid tokenizer"):
        WhisperVocabulary(tmp_path / "tokenizer.json", is_multilingual=True)


# What transformers' own tokenizer makes of the same, for the published vocabularies.
GOLDEN = {
    DecoderPrompt("en"): (" hello you", "hello you", (50258, 50259, 50359, 50363, 7751, 291, 50257)),
    DecoderPrompt("be", "translate"): (
        " Ўсе раз'яднаць",
        "Ўсе раз'яднаць",
        (50258, 50330, 50358, 50363, 333, 236, 28340, 4203, 6, 12825, 1931, 1814, 678, 50257),
    ),
    DecoderPrompt("zh"): ("你好", "你好", (50258, 50260, 50359, 50363, 26410, 50257)),
    DecoderPrompt("en", has_timestamps=True): (
        "<|0.00|> hello you<|2.70|>",
        "hello you",
        (50258, 50259, 50359, 50364, 7751, 291, 50499, 50257),
    ),
}


@pytest.mark.parametrize("told", GOLDEN, ids=lambda told: f"{told.language}-{told.task}-{told.has_timestamps}")
def test_golden_ids_of_the_multilingual_vocabulary(told):
    from transformers import WhisperTokenizer

    theirs_of, text, golden = GOLDEN[told]
    folder = real("whisper-tiny")
    theirs = WhisperTokenizer.from_pretrained(folder)
    theirs.set_prefix_tokens(told.language, told.task, told.has_timestamps)
    made = sequence(WhisperVocabulary(folder / "tokenizer.json", is_multilingual=True), told, POSITIONS, text, 2.7)
    assert made == golden == tuple(theirs(theirs_of).input_ids)


def test_a_translation_is_written_as_english_is():
    vocabulary = WhisperVocabulary(real("whisper-tiny") / "tokenizer.json", is_multilingual=True)
    for has_times in (False, True):
        told = DecoderPrompt("ja", "translate", has_times, previous_text="Well then")
        made = sequence(vocabulary, told, POSITIONS, "Hello there", 2.0)
        hello, well = vocabulary.spelled(" Hello there"), vocabulary.spelled(" Well then")
        assert made[1 : 1 + len(well)] == well
        assert hello == (made[-4:-2] if has_times else made[-3:-1])
    transcribed = sequence(vocabulary, DecoderPrompt("ja"), POSITIONS, "Hello there", 2.0)
    assert transcribed[4:-1] == vocabulary.spelled("Hello there")


def test_golden_ids_of_the_english_only_vocabulary_and_of_a_prompt():
    from transformers import WhisperTokenizer

    folder = real("whisper-tiny.en")
    vocabulary, theirs = WhisperVocabulary(folder / "tokenizer.json", False), WhisperTokenizer.from_pretrained(folder)
    made = sequence(vocabulary, DecoderPrompt(None), POSITIONS, "hello you", 2.0)
    assert made == (50257, 50362, 23748, 345, 50256) == tuple(theirs(" hello you").input_ids)
    told = prefix(vocabulary, DecoderPrompt(None, previous_text="what was said"), POSITIONS)
    assert told == (*theirs.get_prompt_ids("what was said").tolist(), 50257, 50362)
    assert told[:-2] == (50360, 644, 373, 531)
