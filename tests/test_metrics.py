import math

import pytest

from attune.scoring.accuracy import ACCURACY
from attune.scoring.error_rates import WER


@pytest.mark.parametrize(("metric", "better", "worse"), [(WER, 9.0, 9.5), (ACCURACY, 9.5, 9.0)])
def test_better_is_what_the_metric_declares_and_never_nan(metric, better, worse):
    assert metric.is_better(better, worse)
    assert not metric.is_better(worse, better)
    assert not metric.is_better(better, better)
    assert metric.is_better(worse, math.nan)
    assert not metric.is_better(math.nan, worse)
    assert not metric.is_better(math.nan, math.nan)
