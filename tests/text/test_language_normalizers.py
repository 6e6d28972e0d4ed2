import unicodedata

import pytest

from attune import catalog

TABLE = [
    ("belarusian", "Раз’яднаць, раз'яднаць, РАЗʼЯДНАЦЬ", "раз'яднаць раз'яднаць раз'яднаць"),
    ("belarusian", "Ён у за́мку, ў яе́ — сям’я́!", "ён у замку ў яе сям'я"),
    ("belarusian", "ё́ Й café", "ё й café"),  # the mark of a letter stays, and so does that of another script
    ("ukrainian", "Її́ м’я́со, п`ять", "її м'ясо п'ять"),
    ("russian", "Всё ещё за́мок, йод", "все еще замок йод"),
    ("turkish", "ISPARTA'da, İstanbul; Iğdır ılık", "ısparta'da istanbul ığdır ılık"),
    ("turkish", "i̇yi KÂR", "iyi kâr"),  # the first is what lower() of other software left of İYİ
    ("german", "Straße STRAẞE Strasse, Äpfel!", "straße straße strasse äpfel"),
    ("greek", "Ο ΣΊΣΥΦΟΣ, ο Σίσυφος·", "ο σίσυφος ο σίσυφος"),
    ("french", "L’homme d'aujourd’hui", "l' homme d' aujourd'hui"),
    ("french", "C’est-à-dire qu'il n’a pas l' « amour »", "c' est à dire qu' il n' a pas l' amour"),
    ("french", "J't'aime, quelqu'un, presqu’île", "j' t' aime quelqu'un presqu'île"),
    ("french", "sœur Œuvre", "soeur oeuvre"),
    ("catalan", "La COL·LECCIÓ d’il.lusions paraŀlel al•legoria", "la col·lecció d'il·lusions paral·lel al·legoria"),
    ("catalan", "mel· i llet. Lluna", "mel i llet lluna"),
    ("romanian", "Ştiinţă și ştiință", "știință și știință"),
    ("uzbek", "O‘zbekiston, tog' bogʻ, san’at, 'yaxshi'", "oʻzbekiston togʻ bogʻ san'at yaxshi"),
    ("armenian", "Եվ ի՞նչ։ և Եւ թերևս", "և ինչ և և թերևս"),
    ("armenian", "Երեւան նաեւ", "երևան նաև"),
    ("french", "la lettre 'd' est", "la lettre d est"),
    ("french", "le rock'n'roll", "le rock'n' roll"),
    ("french", "rock̈'n' roll", "rock̈'n' roll"),  # a letter with a mark, for which there is no single character
    ("hebrew", "צה''ל צה׳׳ל", "צהל צהל"),
    ("sinhala", "ශ්\u200dරී ලංකා\u200d!", "ශ්\u200dරී ලංකා"),
    ("bengali", "র\u200d্যাব, র্যাব", "র\u200d্যাব র্যাব"),
    ("nepali", "गर्\u200dयो 👩\u200d👧", "गर्\u200dयो"),
    ("hebrew", 'שָׁלוֹם, צה"ל ארה״ב ג׳ירפה בית־ספר', "שלום צהל ארהב ג'ירפה בית ספר"),
    ("arabic", "مُحَمَّدٌ، الرَّحْمٰنِ ١٢٣ مـــرحبا", "محمد الرحمن 123 مرحبا"),
    ("arabic", "آمن أحمد إلى", "آمن أحمد إلى"),
    ("arabic_alef", "آمَنَ أحمد إلى ٱلله شيء", "امن احمد الى الله شيء"),
    ("persian", "مي‌روم كتاب ۱۲", "میروم کتاب 12"),
    ("hindi", "फ़िल्म ज़रूर क़लम बड़ा पढ़ना", "फिल्म जरूर कलम बड़ा पढ़ना"),
    ("hindi", "हिन्दी सम्बन्ध अन्न सम्मान हाँ। १२", "हिंदी संबंध अन्न सम्मान हां 12"),
    ("malayalam", "അവന്\u200d എന്\u200dറെ എൻറെ എൻ്റെ കൌതുകം", "അവൻ എന്റെ എന്റെ എന്റെ കൗതുകം"),
    ("thai", "น\u0e4d\u0e49\u0e32 เเละ ๑๒", "น้ำ และ 12"),
    ("spaced_characters", "我在2024年买了iPhone。", "我 在 2024 年 买 了 iphone"),
    ("spaced_characters", "東京タワーへ 行く", "東 京 タ ワ ー へ 行 く"),
    ("spaced_characters", "ใส่น้ำ ครับ", "ใ ส่ น้ำ ค รั บ"),
    ("spaced_characters", "ខ្មែរ ສະບາຍດີ မြန်မာ က္က", "ខ្មែ រ ສ ະ ບ າ ຍ ດີ မြ န် မာ က္က"),
    ("spaced_characters", "안녕 하세요, don't", "안녕 하세요 don't"),
]


@pytest.mark.parametrize(("name", "text", "expected"), TABLE)
def test_a_language_has_its_own_rules(name, text, expected):
    assert catalog.find(catalog.NORMALIZERS, name)(text) == unicodedata.normalize("NFC", expected)


@pytest.mark.parametrize(("name", "text", "expected"), TABLE)
def test_how_accents_are_composed_does_not_matter(name, text, expected):
    normalize = catalog.find(catalog.NORMALIZERS, name)
    assert normalize(unicodedata.normalize("NFD", text)) == normalize(text)


def test_words_of_spaced_characters_are_counted_as_characters():
    from attune.scoring.error_rates import score_transcripts

    normalize = catalog.find(catalog.NORMALIZERS, "spaced_characters")
    scores = score_transcripts(["今天天气很好"], ["今天 天汽很好。"], normalize, "spaced_characters")
    assert scores.counts["num_scored_tokens"] == 6
    assert scores.counts["num_edits"] == 1
