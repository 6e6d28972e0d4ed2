import pytest
import torch

from attune.decoding.search import Search, search
from attune.errors import ModelError
from attune.types import FrameScorer, Hypothesis, LabelScorer


def test_settings_choose_the_search():
    scorer = FrameScorer(torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log(), torch.tensor([2]))
    assert search(scorer, Search("greedy"))[0].tokens == ()
    assert search(scorer, Search("beam", beam=2))[0].tokens == (1,)


@pytest.mark.parametrize("settings", [Search("greedy"), Search("beam", beam=3)])
def test_labels_have_one_best_answer_however_it_is_looked_for(settings):
    scorer = LabelScorer(torch.tensor([[-2.0, -0.5, -1.5], [-0.25, -4.0, -4.0]]))
    assert search(scorer, settings) == [Hypothesis((1,), -0.5), Hypothesis((0,), -0.25)]


def test_a_model_that_diverged_is_named_instead_of_searched():
    with pytest.raises(ModelError, match="NaN"):
        search(FrameScorer(torch.full((1, 3, 4), torch.nan), torch.tensor([3])), Search("beam"))
