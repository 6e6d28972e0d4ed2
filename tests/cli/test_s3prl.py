"""S3PRL's command line becomes attune's; nothing in it is evaluated."""

import shlex
from pathlib import Path

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.cli._shell import parser_of
from attune.cli.s3prl import commands
from attune.errors import ConfigError


def translated(text):
    return [shlex.join(words) for words in commands(parser_of("s3prl").parse_args(shlex.split(text)))]


def test_a_training_command_names_recipe_upstream_and_overrides():
    (command,) = translated(
        "-m train -n Name -u hubert -d speech_commands -s hidden_states -l -1 "
        '-o "config.optimizer.lr=1e-3,, config.runner.total_steps=10"'
    )
    words = shlex.split(command)
    assert words[:2] == ["train", "superb-ks"]
    assert "run=result/downstream/Name" in words and "seed=1337" in words
    assert {"model.family=ssl", "model.upstream=hubert", "model.weights=hf://facebook/hubert-base-ls960"} <= {*words}
    assert {"model.layers=-1", "adapt.freeze=[upstream]", "optimizer.lr=0.001", "train.steps=10"} <= {*words}


def test_fine_tuning_freezes_nothing_and_own_weights_are_named():
    (command,) = translated("-m train -p exp -u hubert_local -k my.pt -d asr -f --upstream_feature_normalize")
    assert "adapt.freeze" not in command and "model.normalize=true" in command
    assert "model.upstream=hubert" in command and "model.weights=my.pt" in command and "run=exp" in command
    (command,) = translated("-m train -p exp --hub huggingface -u microsoft/wavlm-large -d asr")
    assert "model.upstream=wavlm" in command and "model.weights=hf://microsoft/wavlm-large" in command


def test_an_upstream_of_your_own_goes_by_its_file_or_dotted_name():
    (command,) = translated("-m train -p exp -u ./my_upstream.py -k my.pt -d asr")
    assert "model.upstream=./my_upstream.py model.weights=my.pt" in command
    assert "model.upstream=mine.energy" in translated("-m train -p exp -u mine.energy -d asr")[0]


def test_resume_evaluate_and_push():
    assert translated("-m train -e result/downstream/x/states-100.ckpt") == ["train result/downstream/x/recipe.yaml"]
    assert translated("-m evaluate -n x --device cpu") == ["evaluate result/downstream/x --on test --device cpu"]
    pushed = translated("-m train -p exp/er -u fbank -d emotion --push_to_hf_hub true --hf_hub_org me")
    assert pushed[1] == "push exp/er hf://me/er"


def test_a_resumed_run_takes_the_overrides_and_a_changed_schedule_is_wished_for():
    (command,) = translated("-m train -e exp -o config.runner.total_steps=20,,config.runner.log_step=5")
    assert command == "train exp/recipe.yaml train.steps=20 train.log_every=5 --reschedule"


def test_one_layer_is_selected_by_its_own_key_or_by_its_number():
    for words, layer in (("-s hidden_state_5", 5), ("-l -2", -2), ("-s last_hidden_state -l 3", -1)):
        assert f"model.layers={layer}" in translated(f"-m train -n a -u fbank -d asr {words}")[0].split()


def test_adam_is_the_recipes_optimizer_and_another_is_refused():
    setting = "config.optimizer.name={},,config.optimizer.weight_decay=0.01"
    (command,) = translated(f"-m train -n a -u fbank -d asr -o {setting.format('AdamW')}")
    assert {"optimizer.name=adamw", "optimizer.weight_decay=0.01"} <= {*shlex.split(command)}
    with pytest.raises(ConfigError, match="optimizer.name=SGD has no equivalent"):
        translated(f"-m train -n a -u fbank -d asr -o {setting.format('SGD')}")


def test_a_split_is_the_runs_own_or_a_manifest_beside_it_and_never_another(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test-other.jsonl").touch()
    text = Path(recipes.__file__).with_name("recipes").joinpath("superb-asr.yaml").read_text()
    recipe = text.replace("data/librispeech", str(tmp_path / "data")).replace("base: ", "base: ../")
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "recipe.yaml").write_text(recipe)
    shared = Path(recipes.__file__).with_name("recipes") / "superb.yaml"
    (tmp_path / "superb.yaml").write_text(shared.read_text())
    run = tmp_path / "exp"
    assert translated(f"-m evaluate -e {run} -t test-clean") == [f"evaluate {run} --on test"]
    assert translated(f"-m evaluate -e {run} -t dev-clean") == [f"evaluate {run} --on dev"]
    other = tmp_path / "data" / "test-other.jsonl"
    assert translated(f"-m evaluate -e {run} -t test-other") == [f"evaluate {run} --on {other}"]
    with pytest.raises(ConfigError, match="no dev-other.jsonl"):
        translated(f"-m evaluate -e {run} -t dev-other")
    with pytest.raises(ConfigError, match="is not a run"):
        translated("-m evaluate -e nowhere -t test-clean")


def test_each_language_has_its_own_recipe():
    for name, recipe in (
        ("cv_es", "superb-ood-asr"),
        ("cv_zh", "superb-ood-asr-zh"),
        ("sbcsae", "superb-ood-asr-sbcsae"),
    ):
        (command,) = translated(f"-m train -n a -u fbank -d ctc -c {name}.yaml")
        assert command.startswith(f"train {recipe} ")


def test_options_in_the_override_win_and_a_configuration_file_gives_its_numbers(tmp_path):
    (command,) = translated("-m train -n a -u fbank -d emotion -o args.expdir=b,,args.seed=5")
    assert "run=b" in command and "seed=5" in command
    (tmp_path / "libriphone.yaml").write_text("runner: {total_steps: 7}\noptimizer: {lr: 1.0e-2, name: TorchOptim}\n")
    (command,) = translated(f"-m train -n a -u fbank -d ctc -c {tmp_path / 'libriphone.yaml'}")
    assert command.startswith("train superb-pr ") and "train.steps=7" in command and "optimizer.lr=0.01" in command


def test_a_scheduler_of_s3prl_is_the_schedule_of_the_same_shape():
    setting = "config.scheduler.name={},,config.scheduler.num_warmup_steps=1400"
    for name, shape in (("linear_schedule_with_warmup", "linear"), ("sqrt_decay_schedule_with_warmup", "inverse_sqrt")):
        (command,) = translated(f"-m train -n x -u fbank -d asr -o {setting.format(name)}")
        assert {f"train.schedule={shape}", "train.warmup=1400"} <= {*shlex.split(command)}
    with pytest.raises(ConfigError, match="scheduler.name=linear_schedule has no equivalent; did you mean"):
        translated(f"-m train -n x -u fbank -d asr -o {setting.format('linear_schedule')}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-m train -n a -u huber -d asr", "Unknown upstream 'huber'.*hubert"),
        ("-m train -n a -u hubert_local -d asr", "needs -k"),
        ("-m train -n a -u fbank -d asr2", "Unknown downstream 'asr2'.*asr"),
        ("-m train -n a -u fbank -d ctc", "-d ctc needs -c: one of libriphone.yaml"),
        ("-m train -n a -u fbank -d asr -o config.optimizer.lrr=1", "no equivalent.*config.optimizer.lr"),
        ("-m train -n a -u fbank -d asr -o model.lr=1", "starts with args. or config."),
        ("-m train -n a -u fbank -d asr -o args.sed=1", "no option 'sed'.*seed"),
        ("-m train -n a -u fbank -d asr -s codevectors", "hidden_states"),
        ("-m train -n a -u fbank -d asr -c nowhere.yaml", "-c nowhere.yaml: no such file"),
        ("-m train -u fbank -d asr", "-n or -p"),
        ("-m train -n a -d asr", "-u names the upstream"),
        ("-m train -n a -u fbank -d asr --push_to_hf_hub true", "needs --hf_hub_org"),
    ],
)
def test_what_cannot_be_translated_is_named(words, message):
    with pytest.raises(ConfigError, match=message):
        translated(words)


def test_overrides_are_never_evaluated(tmp_path, capsys):
    target = tmp_path / "touched"
    code = f"config.optimizer.lr=__import__('pathlib').Path('{target}').touch()"
    assert main(["s3prl", "-m", "train", "-n", "x", "-u", "fbank", "-d", "asr", "-o", code, "--dry-run"]) == 0
    assert not target.exists() and capsys.readouterr().out.startswith("attune train superb-asr ")
