import pytest

from attune.metrics import Prediction
from attune.scoring.keywords import score_keywords


def test_occurrences_of_whole_words_are_counted_in_both_texts():
    predictions = [
        Prediction("a", "call Anna Smith and anna", "call anna smith and Anna"),
        Prediction("b", "hannah smith met ann", "Anna Smith met Ann"),
        Prediction("c", "anna smith", "nobody"),
        Prediction("d", None, "anna smith"),
    ]
    found = score_keywords(predictions, [("Anna Smith", "ann")] * 4, lambda text: text)
    assert found.conditions == {"phrases": "2 of 3 found, 1 false"}
    values = {name: round(score.value, 2) for name, score in found.values.items()}
    assert values == {"keyword_recall": 66.67, "keyword_precision": 66.67, "keyword_f1": 66.67}


def test_each_utterance_has_its_own_phrases_and_the_normalizer_counts():
    predictions = [Prediction("a", "Dr. Lee", "dr lee"), Prediction("b", "dr lee", "dr lee")]
    found = score_keywords(predictions, [("Dr. Lee",), ()], lambda text: text.replace(".", ""))
    assert found.conditions == {"phrases": "1 of 1 found, 0 false"}
    assert found.values["keyword_f1"].value == pytest.approx(100.0)
