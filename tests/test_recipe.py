import math
from dataclasses import replace
from pathlib import Path

import pytest

from attune import recipe as recipes
from attune.decoding.settings import SearchConfig
from attune.errors import ConfigError
from attune.recipe import Difference, load
from attune.recipe_keys import json_schema

WHOLE = """\
run: runs/toy
data: {train: [train.jsonl], dev: [dev.jsonl]}
task: {name: toy.task, language: no}
model: {family: toy.family}
batches: {micro_seconds: 240, micros_per_step: 8}
optimizer: {lr: 1e-4}
train: {steps: 100, warmup: 10, eval_every: 50, keep_best: dev.wer}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a whole recipe in it."""
    monkeypatch.chdir(tmp_path)
    Path("whole.yaml").write_text(WHOLE)
    return tmp_path


def problems(path, *overrides):
    with pytest.raises(ConfigError) as error:
        load(Path(path), overrides)
    return str(error.value).split("\n")


def write(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_language_no_is_norwegian_and_lr_1e_4_is_a_number(folder):
    recipe = load(Path("whole.yaml")).recipe
    assert recipe.task.name == "toy.task"
    assert recipe.task.config.language == "no"
    assert recipe.optimizer.lr == 1e-4
    assert recipe.batches.micro_seconds == 240.0
    assert recipe.model.family == "toy.family"
    assert recipe.model.config.width == 8
    assert recipe.decode.final is None


@pytest.mark.parametrize(
    ("overrides", "longest"),
    [((), 30), (("data.long_rows=drop",), 30), (("data.long_rows=fail",), math.inf),
     (("data.long_rows=fail", "data.max_seconds=20"), 20), (("data.max_seconds=60",), 60)],
)  # fmt: skip
def test_no_row_is_left_out_for_its_length_where_long_rows_are_to_stop_the_run(folder, overrides, longest):
    recipe = load(Path("whole.yaml"), overrides).recipe
    assert recipe.data.longest_seconds == longest
    assert recipe.data.max_seconds == (None if longest == math.inf else longest)  # as a run's own recipe has it
    Path("again.yaml").write_text(recipes.resolved_yaml(recipe))
    assert load(Path("again.yaml")).recipe == recipe


def test_the_value_of_an_override_is_read_like_one_of_a_file(folder):
    recipe = load(
        Path("whole.yaml"),
        ["train.strict=true", "data.train=[a.jsonl, b=c.jsonl]", "run=runs/a=b", "decode.final={search: beam}",
         "decode.final.beam=5", "task.vocabulary=30", "train.keep_best=null", "optimizer.betas=[0.9, 0.98]"],
    ).recipe  # fmt: skip
    assert recipe.train.strict is True
    assert recipe.data.train == ("a.jsonl", "b=c.jsonl")
    assert recipe.run == "runs/a=b"
    assert recipe.decode.final == SearchConfig(search="beam", beam=5)
    assert recipe.task.config.vocabulary == 30
    assert recipe.train.keep_best is None


def test_overrides_beat_the_file_which_beats_its_base(folder):
    write("recipes/base.yaml", WHOLE)
    write("recipes/mine/x.yaml", "base: ../base.yaml\nseed: 3\ntrain:\n  steps: 200\n  warmup: 20\n")
    loaded = load(Path("recipes/mine/x.yaml"), ["train.warmup=30"])
    assert loaded.recipe.train.steps == 200
    assert loaded.recipe.train.warmup == 30
    assert loaded.recipe.train.eval_every == 50
    assert loaded.origin("train.steps") == "recipes/mine/x.yaml:4"
    assert loaded.origin("train.warmup") == "override"
    assert loaded.origin("train.eval_every") == "recipes/mine/../base.yaml:7"
    assert loaded.origin("train.clip") == "default"
    assert loaded.origin("decode.final") == "default"


def test_a_base_may_have_a_base(folder):
    write("a.yaml", "base: whole.yaml\nseed: 1\ntrain: {clip: 2}\n")
    write("b.yaml", "base: a.yaml\nseed: 2\n")
    recipe = load(Path("b.yaml")).recipe
    assert (recipe.seed, recipe.train.clip, recipe.train.steps) == (2, 2.0, 100)


def test_another_task_leaves_the_settings_of_the_former_one_behind(folder):
    write("base.yaml", WHOLE.replace("toy.task, language: no", "classify, label: word"))
    write("x.yaml", "base: base.yaml\ntask: {name: toy.task, language: be}\n")
    assert load(Path("x.yaml")).recipe.task.config.language == "be"
    recipe = load(Path("whole.yaml"), ["task.label=word", "task.name=classify"]).recipe
    assert recipe.task.config.label == "word"


def test_five_problems_are_reported_at_once_each_with_its_line(folder):
    write(
        "x.yaml",
        "run: runs/x\n"
        "data:\n"
        "  train: [train.jsonl]\n"
        "task: {name: toy.tusk, language: no}\n"
        "model: {family: toy.family, widht: 3}\n"
        "batches: {micro_seconds: 1, micro_utterances: 1}\n"
        "optimizer:\n"
        "  name: adam\n"
        "train:\n"
        "  steps: many\n"
        "  stps: 5\n"
        "decoding: {}\n",
    )
    assert problems("x.yaml", "train.clip=-1", "sed=3") == [
        "override: train.clip: expected more than 0, found '-1'",
        "override: sed: unknown key; did you mean 'seed'?",
        "x.yaml:4: task.name: No module 'toy.tusk' for the plug-in 'toy.tusk'. Install its package.",
        "x.yaml:5: model.widht: unknown key; did you mean 'width'?",
        "x.yaml:6: batches: set exactly one of micro_seconds and micro_utterances",
        "x.yaml:7: optimizer.lr: required, but missing",
        "x.yaml:8: optimizer.name: unknown value 'adam'; did you mean 'adamw'?",
        "x.yaml:10: train.steps: expected a whole number, found 'many'",
        "x.yaml:11: train.stps: unknown key; did you mean 'steps'?",
        "x.yaml:12: decoding: unknown key; did you mean 'decode'?",
    ]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("batches.micro_seconds=null", "whole.yaml:5: batches: set exactly one of micro_seconds and micro_utterances"),
        ("train.warmup=100", "override: train.warmup: must be less than steps (100), found 100"),
        ("train.keep_best=wer", "override: train.keep_best: expected a dev score such as dev.wer, found 'wer'"),
        ("data.min_seconds=40", "override: data.min_seconds: must be less than max_seconds (30), found 40"),
        ("train.eval_every=", "whole.yaml:7: train.keep_best: needs train.eval_every and data.dev"),
        ("data.train=[]", "override: data.train: set manifests to train on, or data.stream"),
        ("data.stream={shards: [a.tar]}", "override: data.stream: replaces data.train; set one of them"),
        ("data.mix={temperature: 2}", "override: data.mix: needs two or more manifests in data.train"),
        ("data.train=['']", "override: data.train[0]: expected text at least 1 long, found ''"),
        ("run=", "override: run: expected text, found nothing"),
        ("task=toy.task", "override: task: expected keys and values, found 'toy.task'"),
        ("task.name=[x]", "override: task.name: expected a name, found a list of 1"),
        ("task={name: toy.family}", "override: task.name: Module 'toy.family' does not export TASK."),
        ("run=hf://team/x", "override: run: must be a folder, or s3://BUCKET/NAME"),
        ("run=s3://bucket", "override: run: must be a folder, or s3://BUCKET/NAME"),
        ("task.name=./task.py", "override: task.name: No file task.py for the task"),
        ("task.name=transcibe", "override: task.name: Unknown task 'transcibe'; did you mean "),
        ("task.language=tlh", "whole.yaml:3: task: Klingon needs a lexicon"),
        ("train.steps.x=1", "override: train.steps: expected a whole number, found keys and values"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_a_problem(folder, override, expected):
    found = problems("whole.yaml", override)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_scoring_during_training_needs_something_to_score(folder):
    assert problems("whole.yaml", "data.dev=[]") == [
        "whole.yaml:7: train.eval_every: nothing to evaluate: set data.dev",
        "whole.yaml:7: train.keep_best: needs train.eval_every and data.dev",
    ]


def test_a_plug_in_must_be_chosen(folder):
    write("x.yaml", WHOLE.replace("name: toy.task, ", ""))
    assert problems("x.yaml") == ["x.yaml:3: task.name: required, but missing"]


def test_a_missing_base_is_a_problem_beside_the_others_but_hides_what_it_would_have_given(folder):
    write("x.yaml", "seed: 1\nbase: nowhere.yaml\ntrain: {stps: 3}\nbatches: {micros_per_step: 2}\n")
    assert problems("x.yaml") == [
        "x.yaml:2: base: no file nowhere.yaml",
        "x.yaml:3: train.stps: unknown key; did you mean 'steps'?",
    ]


def test_a_circle_of_bases_is_shown(folder):
    write("a.yaml", "base: b.yaml\n")
    write("b.yaml", "seed: 1\nbase: a.yaml\n")
    assert problems("a.yaml") == ["b.yaml:2: base: circular: a.yaml → b.yaml → a.yaml"]


def test_a_recipe_is_not_its_own_base(folder):
    write("a.yaml", "base: ./a.yaml\n")
    assert problems("a.yaml") == ["a.yaml:1: base: circular: a.yaml → a.yaml"]


def test_a_base_is_one_path(folder):
    write("a.yaml", "base: [b.yaml, c.yaml]\n")
    assert problems("a.yaml") == ["a.yaml:1: base: expected the path of a recipe file, found a list of 2"]


def test_a_broken_base_is_reported_with_its_own_line(folder):
    write("b.yaml", "seed: 1\ndata: [\n")
    write("a.yaml", "base: b.yaml\n")
    (problem,) = problems("a.yaml")
    assert problem.startswith("b.yaml:3: bad YAML")


def test_an_unreadable_recipe_is_one_problem(folder):
    assert problems("wole.yaml") == ["wole.yaml: no such file; did you mean 'whole.yaml'?"]


def test_a_recipe_of_the_wrong_shape_has_its_sections_asked_for(folder):
    write("x.yaml", "run: x\ndata:\noptimizer: fast\n")
    assert problems("x.yaml") == [
        *(f"x.yaml: {name}: required, but missing" for name in ("task", "model", "batches", "train")),
        "x.yaml:2: data: expected keys and values, found nothing",
        "x.yaml:3: optimizer: expected keys and values, found 'fast'",
    ]


def test_the_resolved_recipe_loads_as_an_equal_one(folder):
    overrides = [
        "task.lexicon='a # b: c'",
        "task.prices={x: 1e-7}",
        "decode.final={search: beam}",
        "data.test=['no', 'null', 'ü, \"x\"']",
        "optimizer.lr=3.0000000000000004e-05",
    ]
    recipe = load(Path("whole.yaml"), overrides).recipe
    write("resolved.yaml", recipes.resolved_yaml(recipe))
    again = load(Path("resolved.yaml"))
    assert again.recipe == recipe
    assert recipes.resolved_yaml(again.recipe) == recipes.resolved_yaml(recipe)
    assert again.origin("train.nonfinite_patience").startswith("resolved.yaml:")


@pytest.mark.parametrize("section", ["decode", "decode.final"])
@pytest.mark.parametrize("setting", ["beam=4", "length_power=0.5", "lm=x.arpa", "lm_weight=0.5"])
def test_what_greedy_search_does_not_use_is_refused(folder, section, setting):
    key = f"{section}.{setting.partition('=')[0]}"
    with pytest.raises(ConfigError, match=f"{key}: greedy search does not use it: set search: beam, or remove it"):
        load(Path("whole.yaml"), [f"{section}.search=greedy", f"{section}.{setting}"])
    needed = [] if "weight" not in setting else [f"{section}.lm=x.arpa"]
    load(Path("whole.yaml"), [f"{section}.search=beam", f"{section}.{setting}", *needed])


def test_the_former_default_is_no_setting_where_an_older_run_has_it_written_out(folder):
    assert load(Path("whole.yaml"), ["decode.search=greedy", "decode.length_power=1"]).recipe.decode.length_power == 1
    for bonus in (0.5, 1.0):
        load(Path("whole.yaml"), ["decode.search=greedy", f"decode.phrase_bonus={bonus}"])


def test_a_weight_needs_a_language_model(folder):
    with pytest.raises(ConfigError, match=r"decode\.lm_weight: needs a language model"):
        load(Path("whole.yaml"), ["decode.search=beam", "decode.lm_weight=0.5"])


def test_another_search_leaves_the_settings_of_the_former_behind(folder):
    search = "{search: beam, beam: 4, lm: x.arpa, lm_weight: 0.5, precision: bf16}"
    write("resolved.yaml", recipes.resolved_yaml(load(Path("whole.yaml"), [f"decode.final={search}"]).recipe))
    final = load(Path("resolved.yaml"), ["decode.final.search=greedy"]).recipe.decode.final
    assert final == SearchConfig(precision="bf16")
    final = load(Path("resolved.yaml"), ["decode.final.search=beam"]).recipe.decode.final
    assert final and (final.beam, final.lm) == (4, "x.arpa")


def test_equal_recipes_have_no_differences(folder):
    assert recipes.differences(load(Path("whole.yaml")).recipe, load(Path("whole.yaml"), ["seed=0"]).recipe) == []


def test_differences_are_named_by_dotted_keys(folder):
    old = load(Path("whole.yaml")).recipe
    new = load(
        Path("whole.yaml"), ["optimizer.lr=2e-4", "decode.final={}", "task.head.layers=3", "data.dev=[x]"]
    ).recipe
    found = recipes.differences(old, new)
    assert {difference.key: (difference.old, difference.new) for difference in found} == {
        "data.dev": (["dev.jsonl"], ["x"]),
        "task.head.layers": (2, 3),
        "optimizer.lr": (1e-4, 2e-4),
        "decode.final.search": (None, "greedy"),
        "decode.final.beam": (None, 8),
        "decode.final.fallback": (None, False),
        "decode.final.precision": (None, "fp32"),
        "decode.final.ctc_weight": (None, 0.0),
        "decode.final.lm_weight": (None, 0.3),
        "decode.final.lm_temperature": (None, 1.0),
        "decode.final.phrases": (None, []),
        "decode.final.phrase_bonus": (None, 1.0),
    }


def test_a_difference_reads_as_a_line():
    assert str(Difference("train.steps", 100, None)) == "train.steps: 100 → null"


def test_the_schedule_can_be_told_from_the_experiment(folder):
    old = load(Path("whole.yaml")).recipe
    new = replace(old, train=replace(old.train, steps=200))
    assert {difference.key for difference in recipes.differences(old, new)} <= recipes.SCHEDULE_KEYS


def test_the_schema_knows_bases_limits_and_the_settings_of_each_plug_in():
    schema = json_schema()
    assert schema["properties"]["base"]["type"] == "string"
    assert schema["$defs"]["OptimizerConfig"]["properties"]["lr"]["exclusiveMinimum"] == 0
    tasks = {choice["properties"]["name"].get("const"): choice for choice in schema["$defs"]["TaskChoice"]["anyOf"]}
    assert "label" in tasks["classify"]["properties"]
    assert tasks[None]["properties"]["name"]["pattern"] == r"\."
    families = [choice["properties"]["family"].get("const") for choice in schema["$defs"]["ModelChoice"]["anyOf"]]
    assert "ssl" in families


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("optimizer.lr=1e300", "optimizer.lr: expected at most 100, found '1e300'"),
        ("optimizer.lr=-0.0", "optimizer.lr: expected more than 0, found '-0.0'"),
        ("optimizer.weight_decay=1e300", "optimizer.weight_decay: expected at most 100"),
        (f"train.steps={'9' * 29}", "train.steps: expected at most 1e+09"),
        (f"train.steps={'9' * 5000}", "train.steps: "),
        (f"train.warmup={1 << 62}", "train.warmup: expected at most 1e+09"),
        (f"batches.micro_utterances={'9' * 400}", "batches.micro_utterances: expected at most 1e+09"),
        (f"decode.beam={1 << 31}", "decode.beam: expected at most 10000"),
        (f"adapt={{method: lora, rank: {1 << 31}}}", "adapt.rank: expected at most 65536"),
        ("adapt={method: lora, alpha: 1e300}", "adapt.alpha: expected at most 1e+06"),
    ],
)
def test_a_number_beyond_reason_is_refused_by_name(folder, override, told):
    assert any(told in line for line in problems("whole.yaml", override))
