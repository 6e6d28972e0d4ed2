from attune.corpora import open_corpus, sample_corpus
from attune.testing import make_corpus


def ids(sample):
    return [sample[row].id for row in range(len(sample))]


def test_a_sample_is_a_function_of_ids_and_seed_whatever_order_they_come_in(tmp_path):
    manifest = make_corpus(tmp_path / "corpus", utterances=20)
    corpus = open_corpus("dev", [manifest], tmp_path / "index")
    sample = sample_corpus(corpus, 6, seed=3)
    assert (len(sample), sample.total, sample.name) == (6, 20, "dev")
    assert [sample[row].seconds for row in range(6)] == sample.seconds.tolist()
    assert ids(sample) == ids(sample_corpus(corpus, 6, seed=3)) == sorted(ids(sample))
    assert ids(sample) != ids(sample_corpus(corpus, 6, seed=4))

    turned = manifest.with_name("turned.jsonl")
    turned.write_text("".join(line + "\n" for line in reversed(manifest.read_text().splitlines())))
    again = sample_corpus(open_corpus("dev", [turned], tmp_path / "index"), 6, seed=3)
    assert ids(again) == list(reversed(ids(sample)))
    assert set(ids(sample_corpus(corpus, 4, seed=3))) < set(ids(sample))


def test_a_sample_of_several_sets_knows_which_is_whose(tmp_path):
    manifests = [make_corpus(tmp_path / name, utterances=10, seed=seed) for name, seed in (("one", 1), ("two", 2))]
    for number, manifest in enumerate(manifests):
        manifest.write_text(manifest.read_text().replace('"id": "', f'"id": "{number}-'))
    sample = sample_corpus(open_corpus("dev", manifests, tmp_path / "index"), 8, seed=3)
    assert len(sample.sets) == 2 and set(sample.origins.tolist()) == {0, 1}
    assert [int(each[0]) for each in ids(sample)] == sample.origins.tolist()
