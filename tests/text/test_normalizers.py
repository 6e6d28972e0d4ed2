import random
import unicodedata

import pytest

from attune import catalog
from attune.text.normalizers import keeping, then
from attune.text.normalizers.basic import APOSTROPHES

basic = catalog.find(catalog.NORMALIZERS, "basic")

# Those that are the same twice as once. Whisper's are what they are; their tests say where.
IDEMPOTENT = sorted({*catalog.names(catalog.NORMALIZERS)} - {"english", "whisper_english", "whisper_basic"})

TABLE = {
    "Hello, World!": "hello world",
    "  well-known\tU.S. (3.5 %) ": "well known u s 3 5",
    "नमस्ते, दुनिया!": "नमस्ते दुनिया",  # vowel signs and virama
    "தமிழ் மொழி.": "தமிழ் மொழி",
    "ครับ ผม": "ครับ ผม",  # Thai vowels above
    "مُحَمَّدٌ، مرحبا؟": "مُحَمَّدٌ مرحبا",  # Arabic vowels stay, the comma and question mark go
    "مـــرحبا": "مرحبا",  # a stretched word
    "می\u200cروم": "میروم",  # zero-width non-joiner
    "раз'яднаць раз’яднаць разʼяднаць": "раз'яднаць раз'яднаць раз'яднаць",
    "L’homme, aujourd´hui": "l'homme aujourd'hui",
    "Don`t 'stop' the students' rock 'n' roll": "don't stop the students rock n roll",
    "''quoted''words''": "quoted words",
    "col·lecció": "collecció",
    "STRASSE Straße": "strasse strasse",
    "ΣΊΣΥΦΟΣ Σίσυφος": "σίσυφοσ σίσυφοσ",
    "Ｆｕｌｌ　ｗｉｄｔｈ": "full width",
    "こんにちは、世界。": "こんにちは 世界",
    "น้ำ, ນ້ຳ": "น้ำ ນ້ຳ",  # NFKC alone would take the last vowel apart
    "Ի՞նչ, այո՜": "ինչ այո",  # Armenian question and exclamation marks stand inside words
    "Việt Nam": "việt nam",
    "Google™ ½ x²": "google 1 2 x2",
    "❤️ one 1️⃣ 👍🏽": "one 1",
    "broken\ud800surrogate": "broken surrogate",
    "…": "",
}


@pytest.mark.parametrize(("text", "expected"), TABLE.items())
def test_basic_keeps_words_and_nothing_else(text, expected):
    assert basic(text) == unicodedata.normalize("NFC", expected)


def test_basic_keeps_every_letter_and_mark_of_the_big_scripts():
    blocks = {
        "Devanagari": (0x0900, 0x0954),
        "Bengali": (0x0980, 0x09FE),
        "Tamil": (0x0B82, 0x0BCD),
        "Thai": (0x0E01, 0x0E4E),
        "Arabic": (0x0610, 0x065F),
        "Hebrew": (0x0591, 0x05EA),
    }
    for first, last in blocks.values():
        for code in range(first, last):
            character = chr(code)
            is_spelling = unicodedata.category(character)[0] in "LM" and character not in "ـ"
            if is_spelling:
                is_whole = character == "ำ"
                expected = unicodedata.normalize("NFC" if is_whole else "NFKC", f"x{character}")
                assert basic(f"x{character}") == expected, unicodedata.name(character)


def test_basic_twice_is_basic_once_for_every_character():
    for code in range(0x30000):
        once = basic(f"a{chr(code)}b")
        assert basic(once) == once, hex(code)


# Blocks of a script, and characters that some normalizer has a rule about.
BLOCKS = [
    (0x0020, 0x0250),
    (0x0300, 0x0370),
    (0x0370, 0x0530),
    (0x0531, 0x05FF),
    (0x0600, 0x0700),
    (0x08A0, 0x0980),
    (0x0D00, 0x0D80),
    (0x0E00, 0x0F00),
    (0x1000, 0x10A0),
    (0x1780, 0x17F0),
    (0x1E00, 0x2100),
    (0x3000, 0x3130),
    (0xA9E0, 0xAA80),
    (0xF900, 0xFE00),
    (0xFF00, 0xFFF0),
]
RULED = (
    "lLoOgGiIİıçqu'’ʻ·ŀ.ßẞΣςœŒе\u0300\u0301\u0306\u0307\u0308\u0326\u0327ينىكاأٱ\u0653\u0654\u0655\u064e"
    'नमङ्क़खगज\u0901ന്\u200dൻറെൌเแํ้าำ"״אבԵվւև\U000f00b7\U000f02bb 1٣ŉ'
)
TOGETHER = ["n'", "qu’", "' ", "l·l", "ŉ'", "еւ", "\u0e4d\u0e48\u0e32", "ന്\u200d", "न्त", "''"]


FOUND = ["l\u0591'n'u", "\u0308\u0e4d\u0e48\u0e32", "\u0308\u094d\u200dl\u0300"]  # once not the same twice

ASSIGNED = [chr(code) for code in range(0x30000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
MARKS = [character for character in ASSIGNED if unicodedata.category(character)[0] == "M"]


def any_text(rng):
    """Characters that some normalizer has a rule about, marks, one script and anything else, in any order."""
    script = range(*rng.choice(BLOCKS))
    pools = rng.choices(
        [RULED, APOSTROPHES, TOGETHER, MARKS, ASSIGNED, script], [8, 2, 3, 3, 1, 3], k=rng.randint(1, 9)
    )
    return "".join(each if isinstance(each, str) else chr(each) for each in map(rng.choice, pools))


@pytest.mark.parametrize("name", IDEMPOTENT)
def test_twice_is_as_good_as_once_in_any_script(name):
    rng, normalize = random.Random(3), catalog.find(catalog.NORMALIZERS, name)
    for text in (*FOUND, *(any_text(rng) for _ in range(3000))):
        once = normalize(text)
        assert normalize(once) == once, ascii(text)


@pytest.mark.parametrize("name", ["english", "whisper_basic"])
def test_whispers_rules_take_any_text(name):
    rng, normalize = random.Random(3), catalog.find(catalog.NORMALIZERS, name)
    for _ in range(1000):
        text = any_text(rng)
        found = normalize(text)
        assert "  " not in found and found == normalize(text.lower()), ascii(text)


def test_then_applies_from_left_to_right():
    assert then(str.upper, lambda text: text + "x")("a") == "Ax"


def test_kept_characters_pass_through_as_letters():
    assert keeping("+·", basic)("C++, A·B – C") == "c++ a·b c"


def test_keeping_twice_keeps_both():
    assert keeping("+", keeping("#", basic))("C++, C#!") == "c++ c#"
    assert keeping("+#", keeping("#", basic))("C++, C#!") == "c++ c#"
    assert keeping("𠮷", basic)("𠮷!") == "𠮷"


def test_basic_does_not_depend_on_how_accents_are_composed():
    for text in TABLE:
        assert basic(unicodedata.normalize("NFD", text)) == basic(text)


def test_none_changes_nothing():
    assert catalog.find(catalog.NORMALIZERS, "none")(" As it IS!\n") == " As it IS!\n"


def test_every_normalizer_takes_and_returns_text():
    for name in IDEMPOTENT:
        assert catalog.find(catalog.NORMALIZERS, name)("") == "", name
