"""Take S3PRL's command line: print the attune command that does the same, and run it."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.families.ssl.downstream_expert import ExpertRun
    from attune.plain_yaml import Plain

HELP = "run an S3PRL command line: prints the equivalent attune command first"
EXAMPLE = "attune s3prl -m train -n ks-fbank -u fbank -d speech_commands -o config.optimizer.lr=1e-3"
UNUSED = "accepted but ignored: attune chooses it"


def add_arguments(parser: ArgumentParser) -> None:
    """Take the options of run_downstream.py."""
    parser.add_argument("-m", "--mode", choices=["train", "evaluate"], required=True, help="train or evaluate")
    parser.add_argument("-n", "--expname", help="run folder result/downstream/EXPNAME")
    parser.add_argument("-p", "--expdir", help="run folder")
    parser.add_argument("-u", "--upstream", help="upstream, e.g. fbank, hubert, wavlm_base_plus, hubert_local")
    parser.add_argument("-k", "--upstream_ckpt", metavar="PATH|URL", help="weights of a _local or _url upstream")
    parser.add_argument("-d", "--downstream", help="downstream, e.g. speech_commands, asr, ctc")
    parser.add_argument("-c", "--config", metavar="FILE", help="S3PRL configuration: its runner and optimizer values")
    parser.add_argument("-f", "--upstream_trainable", action="store_true", help="fine-tune the upstream")
    parser.add_argument("-s", "--upstream_feature_selection", default="hidden_states", help="or hidden_state_5, e.g.")
    parser.add_argument("-l", "--upstream_layer_selection", type=int, help="one layer instead of the weighted sum")
    parser.add_argument("--upstream_feature_normalize", action="store_true", help="normalize layers before the sum")
    parser.add_argument("-o", "--override", help='"config.optimizer.lr=1e-3,,config.runner.total_steps=10"')
    parser.add_argument("-e", "--past_exp", metavar="RUN", help="run to resume or evaluate")
    parser.add_argument("-i", "--init_ckpt", metavar="RUN", help="run or model to start from")
    parser.add_argument("-a", "--auto_resume", action="store_true", help="resume (attune always does)")
    parser.add_argument("-t", "--evaluate_split", default="test", help="split to evaluate on")
    parser.add_argument("--hub", choices=["torch", "huggingface"], default="torch", help="where -u is from")
    parser.add_argument("--push_to_hf_hub", default="false", help="true: push the model after training")
    parser.add_argument("--hf_hub_org", metavar="NAME", help="whose Hub repository to push to")
    parser.add_argument("--seed", type=int, default=1337, help="seed of the run")
    parser.add_argument("--device", help="device, e.g. cuda or cpu")
    for name in ("--backend", "--local_rank", "--cache_dir", "-g", "-v"):
        parser.add_argument(name, help=UNUSED)
    for name in ("--verbose", "--disable_cudnn", "-r"):
        parser.add_argument(name, action="store_true", help=UNUSED)
    parser.add_argument("--trust", action="store_true", help="run the code of the downstream folder that -d names")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")


def run(arguments: Namespace) -> int:
    """Print the commands, then run them one after the other."""
    from attune.cli import main

    if arguments.downstream and (Path(arguments.downstream) / "expert.py").is_file():
        return _run_folder(arguments)
    for words in commands(arguments):
        print(shlex.join(["attune", *words]), file=sys.stdout if arguments.dry_run else sys.stderr, flush=True)
        code = 0 if arguments.dry_run else main(words)
        if code:
            return code
    return 0


def commands(arguments: Namespace) -> list[list[str]]:
    """The attune commands that do the same."""
    from attune.cli._s3prl import apply_args, config_overrides, overrides_of, recipe_of, split_of

    arguments = apply_args(arguments)
    device = ["--device", arguments.device] if arguments.device else []
    if arguments.mode == "evaluate":
        model = _run_of(arguments.past_exp or arguments.init_ckpt or _folder(arguments))
        return [["evaluate", model, "--on", split_of(model, arguments.evaluate_split), *device]]
    if arguments.past_exp:
        changed = config_overrides(arguments)
        again = [*changed, "--reschedule"] if changed else []  # S3PRL takes over what changed without a word
        return [["train", f"{_run_of(arguments.past_exp)}/recipe.yaml", *again, *device]]
    start = [f"model.weights={_run_of(arguments.init_ckpt)}"] if arguments.init_ckpt else []
    words = [["train", recipe_of(arguments), *overrides_of(arguments), *start, *device]]
    if str(arguments.push_to_hf_hub).lower() == "true":
        if not arguments.hf_hub_org:
            raise ConfigError("--push_to_hf_hub needs --hf_hub_org: whose repository it is.")
        folder = _folder(arguments)
        words.append(["push", folder, f"hf://{arguments.hf_hub_org}/{Path(folder).name}"])
    return words


def _run_folder(arguments: Namespace) -> int:
    """Train or evaluate a DownstreamExpert folder as it is."""
    from attune.cli._s3prl import apply_args, schedule_of
    from attune.families.ssl.downstream_expert import STATES
    from attune.families.ssl.expert_config import read_optimizer, read_settings
    from attune.world import choose_device

    arguments = apply_args(arguments)
    downstream = Path(arguments.downstream)
    if not arguments.trust:
        raise ConfigError(f"{downstream} is code, which attune runs only with --trust. Read it first.")
    run, config = _expert_run(arguments)
    device = choose_device(arguments.device or "auto")
    if arguments.mode == "evaluate":
        run.restore(Path(arguments.past_exp or arguments.init_ckpt or run.folder))
        print(run.evaluate(arguments.evaluate_split, device))
        return 0
    settings = read_settings(config)
    schedule = schedule_of(config, settings.lr, settings.total_steps)
    if arguments.init_ckpt and not (run.folder / STATES).exists():
        run.restore(Path(arguments.init_ckpt))
        run.step = 0
    if config.get("specaug"):
        print("specaug is not applied: attune has none for such a folder", file=sys.stderr)
    for line in run.train(settings, arguments.upstream_trainable, device, read_optimizer(config), schedule.at):
        print(line, flush=True)
    return 0


def _expert_run(arguments: Namespace) -> tuple[ExpertRun, dict[str, Plain]]:
    """The expert of the folder on its upstream, and its configuration with what `-o` changes."""
    from attune.cli._s3prl import config_changes, layer_of, upstream_of
    from attune.families.ssl import downstream_expert as experts
    from attune.families.ssl.expert_config import read_config, with_changes
    from attune.families.ssl.featurizer import LayerFeaturizer, chosen_layers
    from attune.site import this_site
    from attune.sources import locate

    downstream, folder = Path(arguments.downstream), Path(_folder(arguments))
    given = read_config(Path(arguments.config) if arguments.config else downstream / "config.yaml")
    config = with_changes(given, config_changes(arguments))
    experts.seed_everything(arguments.seed)
    name, weights = upstream_of(arguments)
    upstream = experts.load_upstream(name, locate(weights, this_site().cache) if weights else None, folder / "assets")
    chosen = chosen_layers(layer_of(arguments), len(upstream.widths))
    featurizer = LayerFeaturizer(upstream.widths, chosen, arguments.upstream_feature_normalize)
    options = {**vars(arguments), "expdir": str(folder)}
    expert = experts.load_expert(downstream, featurizer.width, upstream.stride, config, options)
    return experts.ExpertRun(upstream, featurizer, expert, folder), config


def _folder(arguments: Namespace) -> str:
    if arguments.past_exp and not (arguments.expdir or arguments.expname):
        past = Path(arguments.past_exp)
        return str(past.parent if past.suffix == ".ckpt" else past)
    if not (arguments.expdir or arguments.expname):
        raise ConfigError("-n or -p names the experiment, e.g. -n ks-hubert.")
    return str(arguments.expdir or f"result/downstream/{arguments.expname}")


def _run_of(checkpoint: str) -> str:
    """The run of a checkpoint: S3PRL names a file in it, attune the run itself."""
    path = Path(checkpoint)
    if path.suffix == ".ckpt" and not path.exists():
        return str(path.parent)
    if path.suffix == ".ckpt":
        raise ConfigError(f"{checkpoint} was written by S3PRL. attune resumes its own runs: name a run folder.")
    return str(path)
