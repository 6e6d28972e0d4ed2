from attune.report.card import CardFacts, model_card

SENTENCE = "transformers computes 30 s, for which it was not trained."


def card(**settings):
    named = {"name": "small", "address": "hf://team/small", "family": "whisper", "task": "transcribe", "command": ""}
    nothing = {"data": {}, "scores": {}, "environment": {}}
    return model_card(
        CardFacts(**named, **nothing, language="en", weights=None, loads_in_transformers=True, settings=settings)
    )


def test_a_card_says_what_a_trimmed_window_means_for_transformers():
    trimmed = card(**{"model.window": "trimmed"})
    assert SENTENCE in trimmed and "| `model.window` | trimmed |" in trimmed


def test_a_full_window_needs_no_explanation():
    assert SENTENCE not in card(**{"model.window": "full"})
    assert SENTENCE not in card()
