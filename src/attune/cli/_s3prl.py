"""S3PRL's command line in attune's words: which recipe, and which overrides. Read without loading torch."""

from __future__ import annotations

import ast
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attune import recipe as recipes
from attune.catalog import suggestion
from attune.errors import ConfigError
from attune.plain_yaml import Plain, inline_yaml, read_data

if TYPE_CHECKING:
    from attune.training.schedule import Schedule

# `-d`, and where one downstream has several configurations, the name of `-c`: the recipe of the same task
RECIPES = {
    "example": "example",
    "ctc/libriphone": "superb-pr",
    "ctc/snips": "superb-sf",
    "ctc/sbcsae": "superb-ood-asr-sbcsae",
    "ctc/cv_es": "superb-ood-asr",
    "ctc/cv_ar": "superb-ood-asr-ar",
    "ctc/cv_zh": "superb-ood-asr-zh",
    "asr": "superb-asr",
    "speech_commands": "superb-ks",
    "fluent_commands": "superb-ic",
    "voxceleb1": "superb-sid",
    "emotion": "superb-er",
    "quesst14_dtw": "superb-qbe",
    "sv_voxceleb1": "superb-asv",
    "diarization": "superb-sd",
    "speech_translation": "superb-st",
    "enhancement_stft": "superb-se",
    "separation_stft": "superb-ss",
    "a2o-vc-vcc2020": "superb-vc",
}
# `-u`: the upstream, and its published weights
PUBLISHED = {
    "wav2vec2": ("wav2vec2", "hf://facebook/wav2vec2-base"),
    "wav2vec2_base_960": ("wav2vec2", "hf://facebook/wav2vec2-base"),
    "wav2vec2_large_960": ("wav2vec2", "hf://facebook/wav2vec2-large"),
    "wav2vec2_large_ll60k": ("wav2vec2", "hf://facebook/wav2vec2-large-lv60"),
    "xlsr_53": ("wav2vec2", "hf://facebook/wav2vec2-large-xlsr-53"),
    "xls_r_300m": ("wav2vec2", "hf://facebook/wav2vec2-xls-r-300m"),
    "hubert": ("hubert", "hf://facebook/hubert-base-ls960"),
    "hubert_base": ("hubert", "hf://facebook/hubert-base-ls960"),
    "hubert_large_ll60k": ("hubert", "hf://facebook/hubert-large-ll60k"),
    "wavlm": ("wavlm", "hf://microsoft/wavlm-base"),
    "wavlm_base": ("wavlm", "hf://microsoft/wavlm-base"),
    "wavlm_base_plus": ("wavlm", "hf://microsoft/wavlm-base-plus"),
    "wavlm_large": ("wavlm", "hf://microsoft/wavlm-large"),
    "data2vec": ("data2vec", "hf://facebook/data2vec-audio-base"),
    "data2vec_base_960": ("data2vec", "hf://facebook/data2vec-audio-base"),
    "data2vec_large_ll60k": ("data2vec", "hf://facebook/data2vec-audio-large"),
    "unispeech_sat": ("unispeech_sat", "hf://microsoft/unispeech-sat-base"),
    "unispeech_sat_base_plus": ("unispeech_sat", "hf://microsoft/unispeech-sat-base-plus"),
    "unispeech_sat_large": ("unispeech_sat", "hf://microsoft/unispeech-sat-large"),
    "distilhubert": ("distilhubert", "hf://ntu-spml/distilhubert"),
    "whisper_tiny": ("whisper", "hf://openai/whisper-tiny"),
    "whisper_base": ("whisper", "hf://openai/whisper-base"),
    "whisper_small": ("whisper", "hf://openai/whisper-small"),
}
WITHOUT_WEIGHTS = {"fbank": "fbank", "mfcc": "mfcc", "mel": "mel", "linear": "linear", "spectrogram": "spectrogram"}
SUFFIXES = ("_local", "_url", "_custom")  # of an upstream whose weights `-k` names
# Keys of S3PRL's configuration: the override of the same meaning
KEYS = {
    "optimizer.lr": "optimizer.lr",
    "optimizer.name": "optimizer.name",
    "optimizer.torch_optim_name": "optimizer.name",
    "optimizer.weight_decay": "optimizer.weight_decay",
    "runner.total_steps": "train.steps",
    "runner.gradient_clipping": "train.clip",
    "runner.gradient_accumulate_steps": "batches.micros_per_step",
    "runner.log_step": "train.log_every",
    "runner.eval_step": "train.eval_every",
    "runner.save_step": "train.save_every",
    "runner.max_keep": "train.keep_last",
    "scheduler.name": "train.schedule",
    "scheduler.num_warmup_steps": "train.warmup",
    "downstream_expert.datarc.train_batch_size": "batches.micro_utterances",
    "downstream_expert.datarc.batch_size": "batches.micro_utterances",
    "downstream_expert.corpus.batch_size": "batches.micro_utterances",
    "downstream_expert.loaderrc.train_batchsize": "batches.micro_utterances",
    "downstream_expert.modelrc.projector_dim": "task.head.width",
}
SCHEDULES = {
    "linear_schedule_with_warmup": "linear",
    "cosine_schedule_with_warmup": "cosine",
    "constant_schedule_with_warmup": "constant",
    "constant_schedule": "constant",
    "sqrt_decay_schedule_with_warmup": "inverse_sqrt",
}
OPTIMIZERS = {"TorchOptim": "adamw", "Adam": "adamw", "AdamW": "adamw"}  # whose weight decay there is 0, as here
VALUES = {  # of keys whose values go by other names
    "scheduler.name": SCHEDULES,
    "optimizer.name": OPTIMIZERS,
    "optimizer.torch_optim_name": OPTIMIZERS,
}
SPLITS = ("train", "dev", "test")
IGNORED = ("num_workers", "eval_dataloaders", "eval_batch_size", "eval_batchsize")


def recipe_of(arguments: Namespace) -> str:
    """The shipped recipe of the downstream."""
    name = arguments.downstream
    if name is None:
        raise ConfigError("-d names the downstream, e.g. -d speech_commands.")
    variant = f"{name}/{Path(arguments.config).stem}" if arguments.config else name
    known = sorted({key.split("/")[0] for key in RECIPES})
    if arguments.config and variant not in RECIPES and not Path(arguments.config).is_file():
        raise ConfigError(f"-c {arguments.config}: no such file.")
    if variant not in RECIPES and name not in RECIPES:
        if name not in known:
            raise ConfigError(f"Unknown downstream {name!r}{suggestion(name, known)}")
        variants = [key.split("/")[1] for key in RECIPES if key.startswith(f"{name}/")]
        raise ConfigError(f"-d {name} needs -c: one of {', '.join(f'{each}.yaml' for each in variants)}.")
    return RECIPES.get(variant) or RECIPES[name]


def overrides_of(arguments: Namespace) -> list[str]:
    """What S3PRL's options say, as overrides of the recipe."""
    folder = arguments.expdir or (f"result/downstream/{arguments.expname}" if arguments.expname else None)
    if folder is None:
        raise ConfigError("-n or -p names the experiment, e.g. -n ks-hubert.")
    return [
        f"run={inline_yaml(folder)}",
        f"seed={arguments.seed}",
        *_upstream(arguments),
        *([] if arguments.upstream_trainable else ["adapt.freeze=[upstream]"]),
        *(
            [f"model.normalize={str(arguments.upstream_feature_normalize).lower()}"]
            * arguments.upstream_feature_normalize
        ),
        *config_overrides(arguments),
    ]


def config_overrides(arguments: Namespace) -> list[str]:
    """What the configuration file and `-o config.KEY=VALUE` set."""
    return [f"{key}={inline_yaml(value)}" for key, value in dict(_config_values(arguments)).items()]


def split_of(run: str, name: str) -> str:
    """S3PRL's name of a split as attune has it: the run's own split, or a manifest of that name beside its test set."""
    if name in SPLITS:
        return name
    path = Path(run) / "recipe.yaml"
    if not path.is_file():
        raise ConfigError(f"-t {name}: {run} is not a run, so its data is unknown.")
    data = recipes.load(path).recipe.data
    for split in SPLITS:
        if any(Path(source).stem == name for source in getattr(data, split)):
            return split
    beside = [Path(source).with_name(f"{name}.jsonl") for source in (*data.test, *data.dev)]
    found = next((each for each in beside if each.is_file()), None)
    if found is None:
        raise ConfigError(f"-t {name}: the run has train, dev and test, and no {name}.jsonl is beside its manifests.")
    return str(found)


def apply_args(arguments: Namespace) -> Namespace:
    """The options with those that `-o args.KEY=VALUE` sets."""
    changed = vars(arguments).copy()
    for key, value in _assignments(arguments.override):
        section, _, name = key.partition(".")
        if section != "args":
            continue
        if name not in changed:
            raise ConfigError(f"-o {key}: there is no option {name!r}{suggestion(name, changed)}")
        changed[name] = value
    return Namespace(**changed)


def upstream_of(arguments: Namespace) -> tuple[str, str | None]:
    """The upstream's name, and its weights if it has any."""
    words = dict(word.partition("=")[::2] for word in _upstream(arguments))
    return words["model.upstream"], words.get("model.weights")


def config_changes(arguments: Namespace) -> dict[str, Plain]:
    """What `-o config.KEY=VALUE` sets, by S3PRL's own keys."""
    found = {}
    for key, value in _assignments(arguments.override):
        section, _, name = key.partition(".")
        if section not in ("args", "config"):
            raise ConfigError(f"-o {key}: a key starts with args. or config.")
        if section == "config":
            found[name] = value
    return found


def schedule_of(config: Mapping[str, Plain], lr: float, steps: int) -> Schedule:
    """The learning rates of a configuration of S3PRL."""
    from attune.training.schedule import Schedule

    section = config.get("scheduler")
    section = section if isinstance(section, dict) else {"name": "constant_schedule"}
    warmup = _number(section.get("num_warmup_steps", 0))
    if not isinstance(warmup, int | float):
        raise ConfigError(f"scheduler.num_warmup_steps: expected a number, found {warmup!r}.")
    return Schedule(lr, steps, int(warmup), str(_equivalent("scheduler.name", section.get("name"))))


def _upstream(arguments: Namespace) -> Iterator[str]:
    name, weights = arguments.upstream, arguments.upstream_ckpt
    if name is None:
        raise ConfigError("-u names the upstream, e.g. -u hubert or -u fbank.")
    yield "model.family=ssl"
    if arguments.hub == "huggingface":
        yield from (f"model.upstream={_kind_of(name)}", f"model.weights={inline_yaml(f'hf://{name}')}")
    elif suffix := next((each for each in SUFFIXES if name.endswith(each)), None):
        if weights is None:
            raise ConfigError(f"-u {name} needs -k: the path or URL of its weights.")
        yield from (f"model.upstream={name.removesuffix(suffix)}", f"model.weights={inline_yaml(weights)}")
    elif name in WITHOUT_WEIGHTS:
        yield f"model.upstream={WITHOUT_WEIGHTS[name]}"
    elif "." in name:  # a plug-in: my_package.my_upstream, ./my_upstream.py
        yield f"model.upstream={inline_yaml(name)}"
        yield from (f"model.weights={inline_yaml(each)}" for each in [weights] if each)
    elif name in PUBLISHED:
        kind, published = PUBLISHED[name]
        yield from (f"model.upstream={kind}", f"model.weights={inline_yaml(weights or published)}")
    else:
        known = [*WITHOUT_WEIGHTS, *PUBLISHED]
        raise ConfigError(
            f"Unknown upstream {name!r}{suggestion(name, known)} Weights of your own: -u hubert_local -k FILE."
        )
    yield from _layers(arguments)


def _kind_of(repository: str) -> str:
    """The upstream that a repository of the Hub looks like, by its name."""
    kinds = ("wav2vec2-bert", "wav2vec2-conformer", "wav2vec2", "distilhubert", "hubert", "wavlm", "data2vec-audio",
             "unispeech-sat", "whisper")  # fmt: skip
    name = (
        repository.lower().replace("w2v-bert", "wav2vec2-bert").replace("xls-r", "wav2vec2").replace("xlsr", "wav2vec2")
    )
    found = next((kind for kind in kinds if kind in name), None)
    if found is None:
        raise ConfigError(f"Cannot tell the upstream of {repository}. Use -u hubert_url -k hf://{repository}.")
    return found.replace("-", "_")


def _layers(arguments: Namespace) -> Iterator[str]:
    layer = layer_of(arguments)
    if layer is not None:
        yield f"model.layers={layer}"


def layer_of(arguments: Namespace) -> int | None:
    """The layer that `-l` or `-s` selects; None is the weighted sum of all."""
    selection = arguments.upstream_feature_selection
    name, _, number = selection.rpartition("_")
    is_one = name == "hidden_state" and number.isdecimal()
    if not is_one and selection not in ("hidden_states", "last_hidden_state"):
        raise ConfigError(f"-s {selection}: attune has hidden_states, hidden_state_5 and last_hidden_state.")
    if is_one:
        return int(number)
    if selection == "hidden_states" and arguments.upstream_layer_selection is not None:
        return int(arguments.upstream_layer_selection)
    return -1 if selection == "last_hidden_state" else None


def _config_values(arguments: Namespace) -> Iterator[tuple[str, Plain]]:
    """What the configuration file and then `-o config.KEY=VALUE` set, by attune's keys."""
    if arguments.config and Path(arguments.config).is_file():
        loaded = read_data(Path(arguments.config).read_text(encoding="utf-8"), arguments.config)
        for key, value in _flat(loaded if isinstance(loaded, dict) else {}):
            if key in KEYS:  # what a file says beside is the recipe's or the corpus's
                yield KEYS[key], _equivalent(key, _number(value))
    for key, value in _assignments(arguments.override):
        section, _, name = key.partition(".")
        if section not in ("args", "config"):
            raise ConfigError(f"-o {key}: a key starts with args. or config.")
        if section == "config" and name in KEYS:
            yield KEYS[name], _equivalent(name, value)
        elif section == "config" and name.rpartition(".")[2] not in IGNORED:
            known = [f"config.{each}" for each in KEYS]
            raise ConfigError(f"-o {key} has no equivalent{suggestion(key, known)}")


def _equivalent(key: str, value: Plain) -> Plain:
    """The value that means the same; a schedule and an optimizer go by other names."""
    names = VALUES.get(key)
    if names is None:
        return value
    if str(value) not in names:
        raise ConfigError(f"{key}={value} has no equivalent{suggestion(str(value), names)}")
    return names[str(value)]


def _flat(section: Mapping[str, Plain], prefix: str = "") -> Iterator[tuple[str, Plain]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _number(value: Plain) -> Plain:
    """A number that YAML takes for text, such as 1e-4, as one."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _assignments(text: str | None) -> Iterator[tuple[str, Plain]]:
    """`key=value,,key=value`; a value is a Python literal, or else text. Nothing is evaluated."""
    if text is None or text.lower() == "none":
        return
    for part in filter(None, (each.strip() for each in text.split(",,"))):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"-o {part!r}: expected key=value, with `,,` between two of them.")
        yield key.strip(), _literal(value.strip())


def _literal(text: str) -> Plain:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return [*value] if isinstance(value, tuple | set) else value
