"""The manifests for Kubernetes are valid, and start a command of attune with a recipe that attune reads."""

import shlex
from pathlib import Path

import pytest
import yaml

from attune.launch.environment import rank_environment
from attune.recipe import load

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
DOCKER = Path(__file__).parent.parent / "docker"
FILES = ["job.yaml", "kuberay.yaml"]


def documents(name):
    return {each["kind"]: each for each in yaml.safe_load_all((DOCKER / name).read_text())}


def templates(name):
    found = documents(name)
    if "Job" in found:
        return [found["Job"]["spec"]["template"]]
    cluster = found["RayJob"]["spec"]["rayClusterSpec"]
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def validate(document):
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", FILES)
def test_every_object_of_kubernetes_itself_fits_its_schema(name):
    found = documents(name)
    for kind in found.keys() - {"RayJob"}:
        validate(found[kind])
    for template in templates(name):
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]})


def test_the_validation_notices_a_misspelled_field():
    job = documents("job.yaml")["Job"]
    job["spec"]["completion"] = job["spec"].pop("completions")
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(job)


@pytest.mark.parametrize("name", FILES)
def test_the_recipe_is_one_that_attune_reads_and_its_run_is_in_a_store(name, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(documents(name)["ConfigMap"]["data"]["recipe.yaml"])
    assert load(path).recipe.run.startswith("s3://")


@pytest.mark.parametrize("name", FILES)
def test_pods_mount_what_they_use_and_name_no_secret_themselves(name):
    for template in templates(name):
        (container,) = template["spec"]["containers"]
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert container["envFrom"] == [{"secretRef": {"name": "attune-s3"}}]
        assert template["spec"]["securityContext"]["runAsNonRoot"]


def test_the_ranks_of_the_job_find_one_another():
    found = documents("job.yaml")
    spec = found["Job"]["spec"]
    pod = spec["template"]["spec"]
    environment = {each["name"]: each.get("value", "0") for each in pod["containers"][0]["env"]}
    assert int(environment["WORLD_SIZE"]) == spec["completions"] == spec["parallelism"]
    service = found["Service"]["metadata"]["name"]
    assert environment["MASTER_ADDR"] == f"{found['Job']['metadata']['name']}-0.{service}"
    assert pod["subdomain"] == service
    assert int(environment["MASTER_PORT"]) == found["Service"]["spec"]["ports"][0]["port"]
    assert rank_environment(environment) == {}  # torch's own variables: attune takes them as they are


def test_a_job_that_saved_goes_on_and_one_with_a_mistake_ends():
    rules = documents("job.yaml")["Job"]["spec"]["podFailurePolicy"]["rules"]
    actions = {rule["onExitCodes"]["values"][0]: rule["action"] for rule in rules if "onExitCodes" in rule}
    assert actions == {2: "FailJob", 75: "Ignore"}


def test_the_ray_job_runs_attune_on_as_many_workers_as_it_may_have():
    spec = documents("kuberay.yaml")["RayJob"]["spec"]
    words = shlex.split(spec["entrypoint"])
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert words[:2] == ["attune", "train"] and words[words.index("--launch") + 1] == "ray"
    assert words[words.index("--devices") + 1] == f"{group['minReplicas']}-{group['maxReplicas']}"
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
