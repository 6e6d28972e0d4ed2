import json

import numpy as np
import pytest

from attune.cli import main


def combined(capsys, *words, code=0):
    capsys.readouterr()
    assert main(["combine", *map(str, words)]) == code
    return capsys.readouterr()


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def texts(path, values, references, **more):
    names = [f"u{number}" for number in range(len(values))]
    rows = zip(names, values, references, strict=True)
    return write(path, [{"id": name, "value": value, "reference": ref, **more} for name, value, ref in rows])


def value(scores, name):
    return scores["scores"][name]["value"]


REFERENCES = ["the cat sat", "on a mat", "all day long"]


def test_three_systems_vote_and_the_result_is_a_predictions_file(tmp_path, capsys):
    one = texts(tmp_path / "a.jsonl", ["the cat sad", "on a mat", "all day"], REFERENCES)
    two = texts(tmp_path / "b.jsonl", ["the bat sat", "on mat", "all day long"], REFERENCES)
    three = texts(tmp_path / "c.jsonl", ["the cat sat", "an a mat", "all way long"], REFERENCES)
    found = combined(capsys, one, two, three, "--out", tmp_path / "o.jsonl", "--json").out
    scores = json.loads(found)["scores"]
    assert (
        value(scores["combined"], "wer")
        == 0
        < min(value(scores[name], "wer") for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    )
    told = combined(capsys, one, two, three, "--out", tmp_path / "o.jsonl").out
    assert told.splitlines()[-1].endswith("To ignore them: --normalizer basic")
    assert main(["score", str(tmp_path / "o.jsonl"), "--json"]) == 0
    assert value(json.loads(capsys.readouterr().out), "wer") == 0


def test_ctm_files_vote_by_confidence_and_the_rules_are_fitted_on_dev(tmp_path, capsys):
    (tmp_path / "a.ctm").write_text("\ufeffu0 1 0.0 0.3 the 0.9\nu0 1 0.3 0.2 bat 0.2\nu0 1 0.6 0.2 sat 0.9\n")
    (tmp_path / "b.ctm").write_text(";; other\nu0 1 0.3 0.2 cat 0.8\nu0 1 0.0 0.3 the 0.7\nu0 1 0.6 0.2 sat 0.9\n")
    references = write(tmp_path / "m.jsonl", [{"id": "u0", "text": "the cat sat", "audio": "x.wav"}])
    files = (
        tmp_path / "a.ctm",
        tmp_path / "b.ctm",
        "--references",
        references,
        "--out",
        tmp_path / "o.jsonl",
        "--json",
    )
    by_vote = json.loads(combined(capsys, *files).out)
    assert value(by_vote["scores"]["combined"], "wer") > 0  # a tie, which the first system wins
    fitted = json.loads(combined(capsys, *files, "--fit", tmp_path / "a.ctm", tmp_path / "b.ctm").out)
    assert fitted["rules"]["vote"] in ("average", "maximum") and value(fitted["scores"]["combined"], "wer") == 0
    chosen = combined(capsys, *files[:-1], "--vote", "maximum", "--alpha", "0.1").out
    assert "vote by maximum, alpha 0.1, null confidence 0.5" in chosen


def test_the_n_best_of_one_system_vote_too(tmp_path, capsys):
    nbest = [{"text": "a cat", "score": -1.0}, {"text": "the cat", "score": -1.2}, {"text": "the cat", "score": -1.3}]
    path = write(tmp_path / "t.jsonl", [{"id": "u0", "text": "a cat", "nbest": nbest}])
    combined(capsys, path, "--nbest", "--out", tmp_path / "o.jsonl")
    assert json.loads((tmp_path / "o.jsonl").read_text())["value"] == "the cat"


def labels(path, seed, count=400, skill=0.8):
    random = np.random.default_rng(seed)
    actual = np.random.default_rng(5).integers(0, 3, count)
    margins = np.abs(random.normal(size=count))
    is_right = random.random(count) < 1 / 3 + (2 / 3) * skill * (1 - np.exp(-2 * margins))
    guessed = np.where(is_right, actual, (actual + random.integers(1, 3, count)) % 3)
    rows = zip(guessed.tolist(), actual.tolist(), (-np.exp(-margins)).tolist(), strict=True)
    return write(
        path,
        [
            {"id": f"u{number}", "value": f"c{guess}", "reference": f"c{right}", "score": score}
            for number, (guess, right, score) in enumerate(rows)
        ],
    )


def test_labels_are_fused_by_calibrated_scores(tmp_path, capsys):
    dev = [labels(tmp_path / f"dev{seed}.jsonl", seed) for seed in (1, 2, 3)]
    test = [labels(tmp_path / f"test{seed}.jsonl", 10 + seed) for seed in (1, 2, 3)]
    told = combined(capsys, *test, "--fit", *dev, "--task", "classify", "--out", tmp_path / "o.jsonl", "--json").out
    found = json.loads(told)
    capsys.readouterr()
    alone = []
    for path in test:
        assert main(["score", str(path), "--task", "classify", "--json"]) == 0
        alone.append(value(json.loads(capsys.readouterr().out), "accuracy"))
    assert value(found["scores"], "accuracy") > max(alone) + 3
    assert sum(each["count"] for each in found["reliability"]) == 400 and found["ece"] < 15
    # One system alone: calibrated, its confidences are right on the whole.
    told = combined(capsys, test[0], "--fit", dev[0], "--task", "classify", "--out", tmp_path / "c.jsonl", "--json").out
    assert json.loads(told)["ece"] < 8 and value(json.loads(told)["scores"], "accuracy") == alone[0]


def trials(path, seed, count=600):
    random = np.random.default_rng(seed)
    is_target = np.random.default_rng(4).random(count) < 0.4
    scores = 0.3 + 0.2 * is_target + 0.15 * random.normal(size=count)
    rows = zip(scores.tolist(), is_target.tolist(), strict=True)
    return write(path, [{"id": f"t{n}", "value": score, "reference": right} for n, (score, right) in enumerate(rows)])


def test_trials_become_log_likelihood_ratios(tmp_path, capsys):
    dev = [trials(tmp_path / f"dev{seed}.jsonl", seed) for seed in (1, 2)]
    test = [trials(tmp_path / f"test{seed}.jsonl", 10 + seed) for seed in (1, 2)]
    told = combined(capsys, *test, "--fit", *dev, "--task", "verify", "--out", tmp_path / "o.jsonl").out
    assert "log-odds" in told and "cllr" in told and "expected calibration error" in told
    scored = {}
    for path in (test[0], tmp_path / "o.jsonl"):
        capsys.readouterr()
        assert main(["score", str(path), "--task", "verify", "--json"]) == 0
        scored[path] = json.loads(capsys.readouterr().out)
    before, after = scored[test[0]], scored[tmp_path / "o.jsonl"]
    assert value(after, "eer") < value(before, "eer") and value(after, "cllr") < 0.75 * value(before, "cllr")
    assert value(after, "cllr") - value(after, "min_cllr") < 0.05


def test_embeddings_are_compared_by_a_trial_list(tmp_path, capsys):
    random = np.random.default_rng(0)
    rows = []
    for number in range(40):
        vector = np.eye(4)[number % 4] + 0.4 * random.normal(size=4)
        rows.append({"id": f"u{number}", "value": vector.tolist(), "reference": f"s{number % 4}"})
    path = write(tmp_path / "e.jsonl", rows)
    (tmp_path / "trials").write_text(
        "".join(f"{int(a % 4 == b % 4)} u{a} u{b}\n" for a in range(20) for b in range(20, 40))
    )
    more = ("--trials", tmp_path / "trials", "--out", tmp_path / "o.jsonl", "--json")
    found = json.loads(combined(capsys, path, "--fit", path, "--task", "verify", *more).out)
    assert found["scores"]["counts"]["num_trials"] == 400 and value(found["scores"], "cllr") < 0.6


def test_a_trial_that_a_list_repeats_counts_once(tmp_path, capsys):
    vectors = {"a": [1, 0], "b": [1, 0.1], "c": [0, 1], "d": [0.2, 1]}
    file = write(tmp_path / "e.jsonl", [{"id": one, "value": each, "reference": "s"} for one, each in vectors.items()])
    (tmp_path / "trials.txt").write_text("1 a b\n0 a c\n0 a c\n1 c d\n")
    lists = ("--trials", tmp_path / "trials.txt", "--fit-trials", tmp_path / "trials.txt", "--task", "verify")
    combined(capsys, file, file, "--fit", file, file, *lists, "--out", tmp_path / "o.jsonl")
    assert [json.loads(line)["id"] for line in (tmp_path / "o.jsonl").read_text().splitlines()] == ["a b", "a c", "c d"]


def test_two_recordings_of_one_name_and_other_answers_to_a_trial_are_refused(tmp_path, capsys):
    same = write(tmp_path / "a.jsonl", [{"path": f"{folder}/1.wav", "text": folder} for folder in "xy"])
    told = combined(capsys, same, "--out", tmp_path / "o.jsonl", code=2).err
    assert "a.jsonl has two transcripts of '1'" in told
    one, other = (
        write(tmp_path / f"{name}.jsonl", [
            {"id": "a b", "value": 0.7, "reference": True}, {"id": "a c", "value": 0.1, "reference": answer},
            {"id": "b c", "value": 0.2, "reference": False},
        ])
        for name, answer in (("one", False), ("other", True))
    )  # fmt: skip
    files = (one, other, "--fit", one, other, "--task", "verify", "--out", tmp_path / "o.jsonl")
    assert "File 2 has other answers than the first" in combined(capsys, *files, code=2).err


def test_files_that_do_not_belong_together_are_refused(tmp_path, capsys):
    one, two = texts(tmp_path / "a.jsonl", ["x"], ["x"]), texts(tmp_path / "b.jsonl", ["x", "y"], ["x", "y"])
    out = ("--out", tmp_path / "o.jsonl")
    assert "different ids than the first" in combined(capsys, one, two, *out, code=2).err
    assert "needs --fit" in combined(capsys, one, "--task", "classify", *out, code=2).err
    assert "Give one for each" in combined(capsys, one, one, "--fit", one, *out, code=2).err
    assert "need --vote" in combined(capsys, one, "--alpha", "0.3", *out, code=2).err
    (tmp_path / "x.ctm").write_text("u0 1 zero\n")
    assert "x.ctm:1: expected" in combined(capsys, tmp_path / "x.ctm", *out, code=2).err
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("row", [{"value": 3.5}, {"value": {"text": "a"}}, {"value": None, "file": "dev/u0.wav"}])
def test_predictions_that_are_no_texts_are_not_voted_on(row, tmp_path, capsys):
    path = write(tmp_path / "a.jsonl", [{"id": "u0", "reference": "clean", **row}])
    printed = combined(capsys, path, path, "--out", tmp_path / "o.jsonl", code=2)
    assert f"{path}: the value of 'u0' is no text. Give transcripts, or name the --task." in printed.err


def test_json_that_is_nested_too_deeply_is_refused(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("[" * 100_000)
    assert main(["combine", str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "b")]) == 2
    assert "nested too deeply" in capsys.readouterr().err


def test_texts_with_line_separators_of_their_own_are_read_whole(tmp_path, capsys):
    texts_of = ["the cat\u2028sat", "on a\x85mat"]
    rows = [{"id": f"u{number}", "value": text, "reference": text} for number, text in enumerate(texts_of)]
    one, two = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path in (one, two):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    found = combined(capsys, one, two, "--references", one, "--out", tmp_path / "o.jsonl", "--json").out
    assert value(json.loads(found)["scores"]["combined"], "wer") == 0


def test_a_row_without_a_reference_has_none_and_not_the_word_none(tmp_path, capsys):
    one = texts(tmp_path / "a.jsonl", ["the cat sat"], [None])
    references = write(tmp_path / "references.jsonl", [{"id": "u0", "reference": None}])
    printed = combined(capsys, one, one, "--references", references, "--out", tmp_path / "o.jsonl", code=2)
    assert f"{references}:1: expected JSON with an id and a text or reference" in printed.err


def test_a_label_that_every_system_finds_improbable_has_a_chance_of_nothing(tmp_path, capsys):
    def labels(path, scores):
        rows = [
            {"id": f"u{number}", "value": "yes" if score > -1 else "no", "reference": "yes", "score": score}
            for number, score in enumerate(scores)
        ]
        return write(path, rows)

    dev = labels(tmp_path / "dev.jsonl", [-0.1, -0.11, -1.1, -1.12])
    test = labels(tmp_path / "test.jsonl", [-0.1, -500.0])
    combined(capsys, test, "--fit", dev, "--task", "classify", "--out", tmp_path / "o.jsonl")
    scores = [json.loads(line)["score"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert scores[0] > -0.01 and scores[1] < -700


def test_texts_are_normalized_as_a_whole(tmp_path, capsys):
    spoken = ["twenty one dollars please", "i am mister smith"]
    one = texts(tmp_path / "a.jsonl", spoken, ["$21 please", "I'm Mr. Smith"], score=-2.0)
    words = [{"text": text, "confidence": 0.5} for text in spoken[0].split()]
    two = write(
        tmp_path / "b.jsonl", [{"id": "u0", "text": spoken[0], "words": words}, {"id": "u1", "text": spoken[1]}]
    )
    options = ("--normalizer", "english", "--out", tmp_path / "o.jsonl", "--json")
    scores = json.loads(combined(capsys, one, two, *options).out)["scores"]
    assert {value(each, "wer") for each in scores.values()} == {0.0}


def test_a_recording_in_which_one_ctm_has_no_word_is_combined(tmp_path, capsys):
    (tmp_path / "a.ctm").write_text("u0 1 0 0.3 the 0.9\nu1 1 0 0.3 cat 0.9\n")
    (tmp_path / "b.ctm").write_text("u0 1 0 0.3 the 0.9\n")
    (tmp_path / "c.ctm").write_text("u0 1 0 0.3 the 0.9\n;; nothing in u1\n")
    found = combined(capsys, *(tmp_path / f"{name}.ctm" for name in "abc"), "--out", tmp_path / "o.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [(row["id"], row["value"]) for row in rows] == [("u0", "the"), ("u1", "")]
    assert "b.ctm has no word of 1 of 2 recordings, such as 'u1'" in found.err
    (tmp_path / "d.ctm").write_text("other 1 0 0.3 the 0.9\n")
    refused = combined(capsys, tmp_path / "a.ctm", tmp_path / "d.ctm", "--out", tmp_path / "o.jsonl", code=2).err
    assert "different ids" in refused


@pytest.mark.parametrize(
    ("values", "told"), [(["yes", "yes"], "all 2 are right"), ([None, None], "it has no predictions")]
)
def test_a_dev_set_that_cannot_calibrate_is_named(values, told, tmp_path, capsys, recwarn):
    fine = texts(tmp_path / "fine.jsonl", ["yes", "no"], ["yes", "yes"], score=-1.0)
    useless = texts(tmp_path / "useless.jsonl", values, ["yes", "yes"], score=-1.0)
    options = ("--task", "classify", "--out", tmp_path / "o.jsonl")
    refused = combined(capsys, fine, fine, "--fit", fine, useless, *options, code=2).err
    assert f"--fit file 2: {told}" in refused
    assert not recwarn.list


def test_labels_without_references_or_predictions_have_no_scores_but_are_combined(tmp_path, capsys):
    dev = texts(tmp_path / "dev.jsonl", ["yes", "no"], ["yes", "yes"], score=-1.0)
    blind = texts(tmp_path / "blind.jsonl", ["yes", "no"], [None, None], score=-1.0)
    absent = texts(tmp_path / "absent.jsonl", [None, None], ["yes", "no"])
    for test in (blind, absent):
        options = (test, "--fit", dev, "--task", "classify", "--out", tmp_path / "o.jsonl")
        assert "nan" not in combined(capsys, *options).out
        told = combined(capsys, *options, "--json").out
        assert json.loads(told, parse_constant=pytest.fail)["ece"] is None
        assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 2
