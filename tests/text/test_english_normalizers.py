import json
import random
import sys

import pytest

from attune import catalog
from attune.errors import ConfigError
from attune.text.normalizers import _english_numbers, _english_rules, whisper_english
from attune.text.normalizers._english_spelling import american_spellings

english = catalog.find(catalog.NORMALIZERS, "english")
whisper_basic = catalog.find(catalog.NORMALIZERS, "whisper_basic")

TABLE = {
    "Mr. Smith's favourite colour isn't grey!": "mister smith is favorite color is not gray",
    "He'd been to St. James's, he'd like it": "he had been to saint james is he would like it",
    "Y'all gonna [laughs] (quietly) say, uh, hmm": "you all going to say",
    "twenty one dollars and seven cents": "$21.07",
    "£0.50 or five percent or ten per cent": "¢50 or 5% or 10%",
    "one oh one and double seven or minus five": "101 and 77 or -5",
    "two hundred and five thousand and three": "205003",
    "two and a half million": "2500000",
    "three point one four": "3.14",
    "the twenty first of the 1960s, 3 rd": "the 21st of the 1960s 3rd",
    "1,000,000 people": "1000000 people",
    "one of the ones": "one of the ones",
    "café œuvre Łódź": "cafe oeuvre lodz",
    "organise organisation analysed travelling centre": "organize organization analyzed traveling center",
}

# What is odd is kept, because everybody reports error rates with it.
ODD = {
    "ninth nineth": "ninth 9th",
    "j o s e p h": "j 0 s e p h",
    "version 2.1": "version 2 one",
    "don’t": "don t",
    "minus and five": "-and 5",
    "one oh one, double seven": "10177",
    "$0 55": "¢55",
}


@pytest.mark.parametrize(("text", "expected"), [*TABLE.items(), *ODD.items()])
def test_english_is_written_in_one_way(text, expected):
    assert english(text).strip() == expected


@pytest.mark.parametrize(
    ("british", "american"),
    {
        "modernisations": "modernizations",
        "neighbourhood": "neighborhood",
        "unravelled": "unraveled",
        "theatregoers": "theatergoers",
        "centred": "centered",
        "programmes": "programs",
        "fulfilment": "fulfillment",
        "skilfully": "skillfully",
        "anaesthetised": "anesthetized",
        "tranquilliser": "tranquilizer",
    }.items(),
)
def test_british_spelling_becomes_american(british, american):
    assert english(british) == american


def test_american_spelling_is_never_spelled_anew():
    spellings = american_spellings()
    assert not {*spellings} & {*spellings.values()}


def test_words_that_only_look_british_stay():
    text = "an hour on tour is no surprise to advise on a filled acre of this genre with its glamour in parallel"
    assert english(text) == text


def test_a_number_longer_than_python_converts_stays():
    assert english("1" * 5000) == "1" * 5000


def test_digits_with_leading_zeros_are_not_the_same_twice():
    assert english("oh seven nine") == "079"
    assert english("079") == "79"


def test_basic_of_whisper_breaks_words_at_marks_and_apostrophes():
    assert whisper_basic("नमस्ते, раз'яднаць (so) [x]!") == "नमस त раз яднаць "


# Equality with transformers

PIECES = """
's 'd n't 'll 've 'd been it'sn't and a half . 5 20 3.5 $5 £0.5 ¢7 1 0 00 1960s 2nd % $ 100% -5 +3 3. $.5 (a) [b] <c>
1,000,000 a.m. x1y café œuvre ß İ ᴭ ſt – ٣ ½ ² don’t ﬁ Ⅳ colour organise uh mm
"""
VOCABULARY = [
    *_english_numbers._KNOWN,
    *_english_numbers._KNOWN,
    *_english_rules._WORDS,
    *PIECES.split(),
    "and a half",
    "'d been",
]
CHARACTERS = "abdmnorst'0123456789 .,%$¢€£-+()[]<>éß٣½İΣ\u0301\u0903\n\t"


def any_english(rng):
    if rng.random() < 0.6:
        gaps = [" ", " ", " ", " ", "", "-", ", ", "'"]
        text = "".join(rng.choice(VOCABULARY) + rng.choice(gaps) for _ in range(rng.randint(1, 12)))
    else:
        text = "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(0, 25)))
    return text.upper() if rng.random() < 0.1 else text


def texts():
    rng = random.Random(4)
    return [*TABLE, *ODD, *(any_english(rng) for _ in range(2000))]


def test_english_equals_whispers_normalizer_with_the_same_spellings():
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    theirs = EnglishTextNormalizer(american_spellings())
    assert [text for text in texts() if english(text) != theirs(text)] == []


def test_whisper_basic_equals_whispers_normalizer():
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    theirs = BasicTextNormalizer()
    assert [text for text in texts() if whisper_basic(text) != theirs(text)] == []


# The published spelling list


@pytest.fixture
def no_list_read():
    whisper_english._published_spellings.cache_clear()
    yield
    whisper_english._published_spellings.cache_clear()


def test_whisper_english_spells_by_the_published_list(no_list_read, tmp_path, monkeypatch):
    folder = tmp_path / "whisper_normalizer" / "normalizers"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('only data is read')")
    (folder / "english.json").write_text(json.dumps({"grey": "gray"}))
    monkeypatch.syspath_prepend(tmp_path)
    assert whisper_english.NORMALIZER("Grey, Mr. Colour") == "gray mister colour"


def test_whisper_english_without_the_list_says_what_to_install(no_list_read, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "whisper_normalizer", raising=False)
    with pytest.raises(ConfigError, match="pip install whisper-normalizer"):
        whisper_english.NORMALIZER("grey")


def test_own_spellings_cover_the_published_list(no_list_read):
    pytest.importorskip("whisper_normalizer")
    published, own = whisper_english._published_spellings(), american_spellings()
    covered = sum(own.get(british) == american for british, american in published.items())
    assert covered >= 0.92 * len(published)
