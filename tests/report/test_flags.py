"""Flags: each on what it is for, and on nothing else."""

from attune.report.flags import FLAGS, Judged, flags_of, repeats


def names(rows, vocabulary=None):
    return [[name for place, name in enumerate(FLAGS) if bits >> place & 1] for bits in flags_of(rows, vocabulary)]


def judged(reference, hypothesis, errors=0, score=-1.0):
    return Judged(reference.split(), None if hypothesis is None else hypothesis.split(), errors, score)


def test_a_good_hypothesis_has_no_flag():
    assert names([judged("the cat sat", "the cat sat"), judged("no no no no", "no no no no")]) == [[], []]


def test_absent_empty_and_runaway_hypotheses_have_theirs():
    rows = [
        judged("a b", None),
        judged("a b", "", 2),
        judged("a b", "a b c d e f g h", 6),
        judged("a b c d", "a a a a", 3),
    ]
    assert names(rows) == [["absent"], ["empty"], ["runaway"], ["runaway"]]


def test_a_sure_and_wrong_hypothesis_makes_its_reference_suspect():
    sure = [judged("a b c", "x y z", 3, -0.1), judged("a b c", "a b c", 0, -0.1)]
    unsure = [judged("a b c", "x y z", 3, -9.0) for _ in range(6)]
    assert names([*sure, *unsure])[:3] == [["suspect"], [], []]


def test_words_that_training_did_not_have_are_out_of_vocabulary():
    assert names([judged("a b", "a b"), judged("a q", "a b", 1)], {"a", "b"}) == [[], ["oov"]]


def test_repeats_of_several_words_are_found():
    assert repeats(["thank", "you", "thank", "you", "thank", "you", "thank", "you"])
    assert not repeats(["thank", "you", "very", "much", "thank", "you"])
