"""The outcome of a group, from the failures of its ranks."""

import json

import pytest

from attune.launch.group import Outcome, StopRequest, outcome_of

torch_errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")


def failure(rank, code, tmp_path, word=None):
    file = tmp_path / f"{rank}.json"
    if word:
        kind, _, reason = word.partition(": ")
        extra = {"timestamp": "0", "error_kind": kind}
        file.write_text(json.dumps({"message": {"message": reason, "extraInfo": extra}}))
    return torch_errors.ProcessFailure(local_rank=rank, pid=1000 + rank, exitcode=code, error_file=str(file))


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ([(0, 1, "RankLost: gone"), (1, -9, None)], ("Rank 1 was killed by SIGKILL.", "")),
        ([(0, 1, None), (1, -9, None)], ("Rank 1 was killed by SIGKILL.", "")),
        ([(0, 1, None)], ("Rank 0 exited with code 1.", "")),
        ([(0, 1, "RankLost: gone"), (1, 1, "ReaderLost: a reader")], ("a reader", "ReaderLost")),
        ([(0, 1, "RankLost: gone")], ("gone", "RankLost")),
        ([(0, -15, None), (1, 1, "RankLost: gone")], ("gone", "RankLost")),  # the launcher has ended the first
        ([(0, -15, None)], ("Rank 0 was killed by SIGTERM.", "")),
    ],
)
def test_the_reason_is_what_a_rank_said_itself_or_how_it_was_ended(failures, reason, tmp_path):
    failed = {rank: failure(rank, code, tmp_path, word) for rank, code, word in failures}
    assert outcome_of(failed, StopRequest("run", [])) == Outcome(1, *reason)
