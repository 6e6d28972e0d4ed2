from xml.etree import ElementTree

from attune.report.card import _layers, layer_plot


def test_a_card_shows_how_much_each_layer_counts_as_bars():
    shown = _layers({"test": {"layer_weights": {"0": 0.1, "1": 0.6, "12": 0.3}}})
    assert shown.splitlines()[-4:-1] == [
        "    0   0.100  ███████",
        f"    1   0.600  {'█' * 40}",
        f"   12   0.300  {'█' * 20}",
    ]


def test_the_card_shows_a_picture_of_the_same_weights():
    scores = {"test": {"layer_weights": {"0": 0.1, "1": 0.6, "12": 0.3}}}
    assert "(layers.svg)" in _layers(scores)
    heights = [
        float(each.get("height")) for each in ElementTree.fromstring(layer_plot(scores)) if each.tag.endswith("rect")
    ]
    assert heights[1] == 2 * heights[2] > 5 * heights[0] > 0


def test_a_single_layer_needs_no_plot():
    assert layer_plot({"test": {"layer_weights": {"3": 1.0}}}) is None
    assert _layers({"test": {"layer_weights": {"3": 1.0}}, "dev": {}}) == ""
