"""What --devices means."""

from argparse import ArgumentTypeError, Namespace

import pytest
import torch

from attune.cli._ranks import cluster_of, devices, endpoint, ranks_wanted, start_node
from attune.errors import ConfigError
from attune.site import this_site


def asked(text, device="cpu"):
    return Namespace(devices=devices(text), device=device, workers=None, timeout=None, offline=False, address=None)


def test_a_number_is_that_many_ranks_and_auto_is_every_gpu():
    assert ranks_wanted(asked("3")) == 3
    assert ranks_wanted(asked("auto")) == 1  # a CPU is one device
    assert ranks_wanted(asked("auto", "auto")) == max(1, torch.cuda.device_count())


def test_no_more_ranks_than_there_are_gpus():
    if not torch.cuda.is_available():
        assert ranks_wanted(asked("3", "auto")) == 3  # gloo ranks of the CPU
    else:
        assert ranks_wanted(asked("64", "auto")) == torch.cuda.device_count()


@pytest.mark.parametrize("text", ["0", "-1", "two", "3-", "0-2", "1.5"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="expected N, auto"):
        devices(text)


def test_only_ray_takes_a_range():
    assert cluster_of(asked("2-8")).workers == (2, 8)
    assert cluster_of(asked("2")).workers == (2, 2)
    with pytest.raises(ConfigError, match="--launch ray"):
        ranks_wanted(asked("2-8"))
    with pytest.raises(ConfigError, match="N or a range"):
        cluster_of(asked("auto"))


def test_ranks_on_one_machine_share_its_cores(monkeypatch):
    monkeypatch.setattr("attune.site.cores", lambda: 16)
    assert this_site().workers == 15
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert this_site().workers == 3


@pytest.mark.parametrize(("nodes", "rendezvous"), [("2-4", None), (None, "host:29400"), ("auto", "host:29400")])
def test_nodes_need_a_place_to_meet(nodes, rendezvous):
    given = Namespace(**vars(asked("1")), nodes=nodes, rendezvous=rendezvous)
    with pytest.raises(ConfigError, match="--nodes and --rendezvous go together"):
        start_node(given, "runs/x")


def test_a_range_that_ends_below_its_start_is_refused():
    with pytest.raises(ArgumentTypeError, match="8-2 ends below its start; write 2-8"):
        devices("8-2")


@pytest.mark.parametrize("text", ["node1", "node1:", "node1:port", "node1:0", "node1:99999", ":29400"])
def test_a_rendezvous_is_a_host_and_a_port(text):
    with pytest.raises(ArgumentTypeError, match="expected HOST:PORT"):
        endpoint(text)
    assert endpoint("[::1]:29400") == "[::1]:29400"
