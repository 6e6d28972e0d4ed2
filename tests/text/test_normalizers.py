import random
import unicodedata

import pytest

from attune import catalog

basic = catalog.find("text.normalizers", "basic")

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
                expected = unicodedata.normalize("NFKC", f"x{character}")
                assert basic(f"x{character}") == expected, unicodedata.name(character)


def test_basic_twice_is_basic_once_for_every_character():
    for code in range(0x30000):
        once = basic(f"a{chr(code)}b")
        assert basic(once) == once, hex(code)


def test_basic_twice_is_basic_once_for_any_mixture():
    rng = random.Random(2)
    odd = [chr(code) for code in range(0x3400) if unicodedata.category(chr(code))[0] in "MPSCZ"]
    letters = "aIßΣςĲͅйहतकகอمא漢ｱﷺﹷ"
    for _ in range(20_000):
        text = "".join(rng.choice(odd if rng.random() < 0.5 else letters) for _ in range(6))
        once = basic(text)
        assert basic(once) == once, ascii(text)


def test_basic_does_not_depend_on_how_accents_are_composed():
    for text in TABLE:
        assert basic(unicodedata.normalize("NFD", text)) == basic(text)


def test_none_changes_nothing():
    assert catalog.find("text.normalizers", "none")(" As it IS!\n") == " As it IS!\n"


def test_normalizers_are_found_by_name():
    assert {"basic", "none"} <= set(catalog.names("text.normalizers"))
