"""Whoever started this process, its rank is found."""

import pytest

from attune.errors import ConfigError
from attune.launch.environment import hosts, interface_environment, rank_environment

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-here-12@1",
}


def test_torchruns_own_words_are_left_alone():
    assert rank_environment({**TORCHRUN, **SLURM}) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"RANK": "2"},
        {"RANK": "one"},
        {"WORLD_SIZE": "0"},
        {"MASTER_ADDR": ""},
        {"MASTER_PORT": "99999"},
        {"MASTER_PORT": ""},
    ],
)
def test_a_place_that_no_launcher_gives_is_refused_with_what_the_environment_has(wrong):
    with pytest.raises(ConfigError, match=r"The environment has RANK=.*unset RANK and WORLD_SIZE"):
        rank_environment({**TORCHRUN, **wrong})
    without = {name: text for name, text in TORCHRUN.items() if name not in wrong or name in ("RANK", "WORLD_SIZE")}
    if without != TORCHRUN:
        with pytest.raises(ConfigError, match=f"no {next(iter(wrong))}"):
            rank_environment(without)


def test_a_rank_of_mpirun_without_a_size_is_alone():
    assert rank_environment({"OMPI_COMM_WORLD_RANK": "0"}) == {}


def test_a_process_that_nobody_started_as_a_rank_is_alone():
    assert rank_environment({"HOME": "/"}) == {}


def test_slurms_words_are_translated():
    found = rank_environment(SLURM)
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"]) == ("5", "8", "1")
    assert found["MASTER_ADDR"] == "gpu07" and 20_000 <= int(found["MASTER_PORT"]) < 32_000


def test_two_jobs_on_a_node_get_different_ports_and_all_ranks_of_a_job_the_same():
    other_rank = rank_environment({**SLURM, "SLURM_PROCID": "6"})
    other_job = rank_environment({**SLURM, "SLURM_JOB_ID": "4712"})
    ours = rank_environment(SLURM)["MASTER_PORT"]
    assert other_rank["MASTER_PORT"] == ours != other_job["MASTER_PORT"]


def test_a_batch_script_itself_is_no_rank():
    assert rank_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}) == {}


def test_one_task_is_alone():
    assert rank_environment({**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) == {}


def test_mpiruns_words_are_translated():
    found = rank_environment(OPEN_MPI)
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"], found["MASTER_ADDR"]) == (
        "1",
        "2",
        "1",
        "127.0.0.1",
    )
    pmi = rank_environment({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4"})
    assert (pmi["RANK"], pmi["WORLD_SIZE"], pmi["LOCAL_RANK"]) == ("3", "4", "3")


def test_mpirun_on_several_machines_needs_to_be_told_where_the_first_is():
    with pytest.raises(ConfigError, match="MASTER_ADDR"):
        rank_environment({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    told = rank_environment({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "9"})
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("a", "9")


def test_slurms_short_form_of_node_names():
    assert list(hosts("gpu[01-03,7],login")) == ["gpu01", "gpu02", "gpu03", "gpu7", "login"]
    assert list(hosts("node5")) == ["node5"]
    assert list(hosts("rack[1-2]node[3-4]")) == ["rack1node3", "rack1node4", "rack2node3", "rack2node4"]
    assert list(hosts("a[1,2]-ib,b[08-09]x[1]y,c")) == ["a1-ib", "a2-ib", "b08x1y", "b09x1y", "c"]
    assert list(hosts("a,b")) == ["a", "b"]


def test_the_interface_that_leads_to_the_first_rank_is_chosen():
    assert interface_environment({"MASTER_ADDR": "127.0.0.2"}) in ({"GLOO_SOCKET_IFNAME": "lo"}, {})
    assert interface_environment({"MASTER_ADDR": "localhost"}) == {}
    assert interface_environment({"MASTER_ADDR": "10.0.0.1", "GLOO_SOCKET_IFNAME": "eth7"}) == {}
