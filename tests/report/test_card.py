from attune.report.card import CardFacts, model_card

SENTENCE = "transformers pads to 30 s, which this model was not trained for"


def card(settings=None, scores=None, **changes):
    facts = {
        "name": "small",
        "address": "hf://team/small",
        "family": "whisper",
        "task": "transcribe",
        "pipeline_tag": "automatic-speech-recognition",
        "method": "transcribe",
        "language": "en",
        "weights": None,
        "loads_in_transformers": True,
        "data": {},
        "environment": {},
        "command": "",
    }
    return model_card(CardFacts(**{**facts, **changes}, settings=settings or {}, scores=scores or {}))


def test_a_card_says_what_a_trimmed_window_means_for_transformers():
    trimmed = card({"model.window": "trimmed"})
    assert SENTENCE in trimmed and "| `model.window` | trimmed |" in trimmed


def test_a_full_window_needs_no_explanation():
    assert SENTENCE not in card({"model.window": "full"})
    assert SENTENCE not in card()


def test_scores_have_their_units_and_conditions():
    score = {"value": 9.5, "low": 8.0, "high": 11.25, "unit": "dB", "higher_is_better": True}
    alone = {"value": 42.166, "low": None, "high": None, "unit": "", "higher_is_better": False}
    values = {"scores": {"si_sdr": score, "perplexity": alone, "sdr": None}, "counts": {}}
    text = card(scores={"test": {**values, "conditions": {"channel": "left"}, "utterances": 1234}})
    assert "| set | metric | value | 95 % interval | utterances | channel | search |" in text
    assert "| test | SI-SDR | 9.50 dB | 8.00 – 11.25 | 1,234 | left |  |" in text
    assert "| test | perplexity | 42.17 |  | 1,234 | left |  |" in text
    assert "| SDR" not in text and "Raw" not in text


def test_scores_of_an_older_run_are_read():
    wer = {"value": 12.345, "low": 10.0, "high": 14.0}
    older = {
        "scores": {"wer": wer, "cer": None, "raw_wer": wer},
        "counts": {"num_scored_sents": 6},
        "normalizer": "basic",
        "search": {"kind": "beam", "beam": 5},
    }
    text = card(scores={"test": older, "dev": {**older, "normalizer": "none"}})
    assert "| test | WER | 12.35 % | 10.00 – 14.00 | 6 | basic | beam 5 |" in text
    assert "| test | raw WER |" in text and "| dev | raw WER |" not in text
    assert '"type": "wer", "name": "WER", "value": 12.345' in text


def test_a_task_without_a_name_on_the_hub_or_a_method_says_how_to_evaluate():
    score = {"value": 9.5, "low": 8.0, "high": 11.0, "unit": "dB", "higher_is_better": True}
    scores = {"test": {"scores": {"si_sdr": score}, "counts": {}, "conditions": {}}}
    text = card(scores=scores, task="my.enhance", pipeline_tag=None, method=None)
    assert "pipeline_tag" not in text and "model-index" not in text
    assert "attune evaluate hf://team/small" in text and "model.transcribe" not in text
