import pytest

from attune.cli import main
from attune.errors import ConfigError
from attune.launch.jobs import EXCLUDES, Job, read_requirements, runtime_environment

from tiny import write_recipe


def test_a_job_has_its_folder_variables_and_packages(tmp_path):
    job = Job(["train"], tmp_path, {"A": "1"}, ["--index-url https://x/simple", "sox==1.5"], ["*.log"])
    assert runtime_environment(job) == {
        "working_dir": str(tmp_path),
        "excludes": [*EXCLUDES, "*.log"],
        "env_vars": {"A": "1"},
        "pip": ["--index-url https://x/simple", "sox==1.5"],
    }
    assert runtime_environment(Job(["train"], tmp_path)).keys() == {"working_dir", "excludes"}


def test_requirements_are_sent_as_lines_with_those_they_include(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/base.txt").write_text("numpy>=2\n-c https://example.org/limits.txt\n")
    (tmp_path / "all.txt").write_text(
        "# what we need\n\n--extra-index-url https://me:${TOKEN}@example.org/simple#x\n"
        "sox==1.5  # effects\nlong \\\n  --hash=sha256:00\n-r more/base.txt\n--requirement=more/base.txt\n"
    )
    assert read_requirements(tmp_path / "all.txt") == [
        "--extra-index-url https://me:${TOKEN}@example.org/simple#x",
        "sox==1.5",
        "long    --hash=sha256:00",
        *(2 * ["numpy>=2", "-c https://example.org/limits.txt"]),
    ]


@pytest.mark.parametrize("line", ["-e .", "-c limits.txt", "--constraint=limits.txt"])
def test_a_requirement_that_only_this_machine_has_is_refused(tmp_path, line):
    (tmp_path / "all.txt").write_text(f"{line}\n")
    with pytest.raises(ConfigError, match="the cluster does not have"):
        read_requirements(tmp_path / "all.txt")


def test_requirements_that_include_themselves_or_are_absent_are_refused(tmp_path):
    (tmp_path / "all.txt").write_text("-r all.txt\n")
    with pytest.raises(ConfigError, match="the cluster does not have"):
        read_requirements(tmp_path / "all.txt")
    with pytest.raises(ConfigError, match="cannot read .*nowhere.txt"):
        read_requirements(tmp_path / "nowhere.txt")


def test_an_index_without_packages_is_refused(tmp_path, capsys):
    recipe = write_recipe(tmp_path, utterances=2)
    words = ["--folder", str(tmp_path), "--address", "http://127.0.0.1:1", "--index-url", "https://x/simple"]
    assert main(["submit", str(recipe), f"run={tmp_path}/run", *words]) == 2
    assert "--index-url has nothing to install" in capsys.readouterr().err
