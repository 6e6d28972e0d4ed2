"""What the GPU benchmarks ask of a device; without one they run on the CPU, small (`--tiny`), which the tests do."""

import gc

import torch

from attune.world import choose_device


def usual() -> torch.device:
    """The GPU where there is one, set up as attune has it: fp32 is fp32 in convolutions too."""
    return choose_device("auto")


def name(device: torch.device) -> str:
    """What the device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def wait(device: torch.device) -> None:
    """Until all that was queued is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget(device: torch.device) -> None:
    """Give back what is not used, and count the peak from here."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: torch.device) -> float | None:
    """The most that torch has had allocated at once."""
    return round(torch.cuda.max_memory_allocated(device) / 2**30, 2) if device.type == "cuda" else None
