from attune.report.card import _layers


def test_a_card_shows_how_much_each_layer_counts_as_bars():
    shown = _layers({"test": {"layer_weights": {"0": 0.1, "1": 0.6, "12": 0.3}}})
    assert shown.splitlines()[-4:-1] == [
        "    0   0.100  ███████",
        f"    1   0.600  {'█' * 40}",
        f"   12   0.300  {'█' * 20}",
    ]


def test_a_single_layer_needs_no_plot():
    assert _layers({"test": {"layer_weights": {"3": 1.0}}, "dev": {}}) == ""
