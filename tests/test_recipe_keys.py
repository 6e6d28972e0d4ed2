import pytest

from attune import config
from attune import recipe as recipes
from attune.cli import main
from attune.errors import ConfigError
from attune.recipe_keys import FIRST_KEYS, explain, recipe_keys

from tiny import RECIPE


def test_every_key_of_a_resolved_recipe_is_explained(tmp_path):
    (tmp_path / "x.yaml").write_text(RECIPE.format(folder=tmp_path, train="a.jsonl", dev="b.jsonl"))
    plain = recipes.to_plain(recipes.load(tmp_path / "x.yaml", []).recipe)
    known = {each.key: each for each in recipe_keys()}
    assert set(config.flatten(plain)) - set(known) == set()
    assert all(each.meaning for each in known.values() if each.type == "section")
    assert all(each.type and each.default and each.meaning and each.since for each in recipe_keys())


def test_a_key_says_which_release_brought_it():
    since = {(each.key, each.owner): each.since for each in recipe_keys()}
    assert since["train.epochs", ""] == since["decode.batch", ""] == since["model.weights", "aed"] == "0.2"
    assert since["train.clip", ""] == since["model.weights", "whisper"] == "0.1"
    kept = {f"{key} {owner}".strip() for key, owner in since}
    assert kept >= set(FIRST_KEYS.read_text().splitlines())  # a key that went is taken from the list too


def test_a_long_section_is_wrapped(capsys):
    assert main(["explain"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_a_key_is_explained_with_type_default_and_meaning(capsys):
    assert main(["explain", "train.patience"]) == 0
    out = capsys.readouterr().out
    assert (
        out.startswith("train.patience\n  Stop early after N evaluations")
        and "type: integer > 0" in out
        and "since: 0.1" in out
    )
    assert main(["explain", "train"]) == 0
    assert {"train.steps", "train.epochs"} <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_a_key_of_several_plug_ins_is_explained_for_each():
    owners = {each.owner for each in explain("model.weights")}
    assert {"ssl", "whisper", "transducer"} <= owners


@pytest.mark.parametrize(
    ("key", "meant"),
    [("train.patence", "'train.patience'"), ("epochs", "train.epochs"), ("decoding.beam", "decode.beam")],
)
def test_an_unknown_key_is_answered_with_what_may_be_meant(key, meant):
    with pytest.raises(ConfigError, match=f"no key '{key}'; did you mean {meant}"):
        explain(key)
