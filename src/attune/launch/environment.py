"""The rank of a process that an external launcher started: torchrun, SLURM's srun, or mpirun.

Each has its own variables for rank, world size and local rank; torch reads torchrun's. They are translated once.
"""

import fcntl
import re
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import product

from attune.errors import ConfigError

PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
FIRST_PORT, PORTS = 20_000, 12_000  # below Linux's ports for outgoing connections


def rank_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that torch needs to join the process group; none if this process is alone."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        _require_place(environment)
        return {}
    for found in (_of_slurm(environment), _of_open_mpi(environment), _of_pmi(environment)):
        if found and int(found["WORLD_SIZE"]) > 1:
            return {**found, **{name: environment[name] for name in found.keys() & environment.keys()}}
    return {}


def _require_place(environment: Mapping[str, str]) -> None:
    """Refuse what no launcher sets: torch would fail far from here, or wait for ranks that cannot come."""
    size, rank = _number(environment, "WORLD_SIZE"), _number(environment, "RANK")
    is_sound = 0 <= rank < size and bool(environment.get("MASTER_ADDR"))
    if not is_sound or not 0 < _number(environment, "MASTER_PORT") < 65536:
        given = ", ".join(f"{name}={environment[name]}" if name in environment else f"no {name}" for name in PLACE)
        raise ConfigError(
            f"The environment has {given}, which is not the place of a rank among others. Start ranks with attune "
            "--devices N, torchrun, srun or mpirun; for one process, unset RANK and WORLD_SIZE."
        )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else -1


def _of_slurm(environment: Mapping[str, str]) -> dict[str, str] | None:
    # Only a step that srun started has ranks: a batch script's own environment has tasks that were not started.
    if "SLURM_STEP_ID" not in environment or "SLURM_PROCID" not in environment:
        return None
    size = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "1")
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "localhost")
    job = f"{environment.get('SLURM_JOB_ID', '')}.{environment['SLURM_STEP_ID']}"
    return _place(environment["SLURM_PROCID"], size, environment.get("SLURM_LOCALID"), next(hosts(nodes)), job)


def _of_open_mpi(environment: Mapping[str, str]) -> dict[str, str] | None:
    if "OMPI_COMM_WORLD_RANK" not in environment or "OMPI_COMM_WORLD_SIZE" not in environment:
        return None
    size = environment["OMPI_COMM_WORLD_SIZE"]
    here = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", size)
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid", "")
    local = environment.get("OMPI_COMM_WORLD_LOCAL_RANK")
    return _place(environment["OMPI_COMM_WORLD_RANK"], size, local, _mpi_host(environment, size, here), job)


def _of_pmi(environment: Mapping[str, str]) -> dict[str, str] | None:
    if "PMI_RANK" not in environment or "PMI_SIZE" not in environment:
        return None
    size = environment["PMI_SIZE"]
    here = environment.get("MPI_LOCALNRANKS", size)
    local = environment.get("MPI_LOCALRANKID")
    job = environment.get("PMI_PORT") or environment.get("PMI_ID", "")
    return _place(environment["PMI_RANK"], size, local, _mpi_host(environment, size, here), job)


def _mpi_host(environment: Mapping[str, str], size: str, here: str) -> str:
    if "MASTER_ADDR" in environment or size == here:
        return environment.get("MASTER_ADDR", "127.0.0.1")
    raise ConfigError(
        "mpirun started ranks on several machines without the address of the first. Run: mpirun -x "
        "MASTER_ADDR=HOST -x MASTER_PORT=29500 …"
    )


def _place(rank: str, size: str, local: str | None, host: str, job: str) -> dict[str, str]:
    port = FIRST_PORT + zlib.crc32(job.encode()) % PORTS  # the same on all ranks of a job
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local or "0",
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }


def hosts(nodes: str) -> Iterator[str]:
    """Expand a SLURM node list: `gpu[01-03,7],login` is gpu01, gpu02, gpu03, gpu7, login."""
    for name in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        parts = re.split(r"\[([^\]]*)\]", name)  # plain text and what stands in brackets, by turns
        choices = [list(_numbers(part)) if place % 2 else [part] for place, part in enumerate(parts)]
        yield from map("".join, product(*choices))


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"


def interface_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The network interface for gloo: the one that leads to the first rank.

    By default gloo uses the one that the host name resolves to, which is often the loopback.
    """
    first = environment.get("MASTER_ADDR", "")
    if "GLOO_SOCKET_IFNAME" in environment or first in ("", "localhost", "127.0.0.1", "::1"):
        return {}
    name = _interface_towards(first)
    return {"GLOO_SOCKET_IFNAME": name} if name else {}


def _interface_towards(host: str) -> str | None:
    get_address = 0x8915  # SIOCGIFADDR of Linux
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # sends nothing; the kernel only chooses a route
            own = probe.getsockname()[0]
        except OSError:
            return None
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), get_address, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    return None
