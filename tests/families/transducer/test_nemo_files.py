"""`.nemo` files are read as data, whatever is in them, and written so that they can be read again."""

import gzip
import io
import os
import pickle
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attune.errors import AttuneError, ModelError
from attune.families._pieces import OwnPieces
from attune.families.transducer import FAMILY, TransducerConfig
from attune.families.transducer.archive import (
    CONFIG,
    WEIGHTS,
    Archive,
    read_archive,
    resolved,
    tokenizer_files,
    write_archive,
)
from attune.families.transducer.front_end import FrontEnd
from attune.families.transducer.shape import read_shape
from attune.families.transducer.weights import import_weights
from attune.plain_yaml import read_data, write_data
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.text.protobuf import fields

from transducers import GOLDEN, golden_folder


def adopted(path, assets):
    assets.mkdir(exist_ok=True)
    config = TransducerConfig(weights=str(path))
    weights = FAMILY.importer.read(config, path, assets).tensors
    model = FAMILY.build(config, Transcribe(TranscribeConfig(), assets), assets).model
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_exported_again_has_the_same_members_configuration_and_bytes(tmp_path, name):
    source = golden_folder(name) / "model.nemo"
    (tmp_path / "out" / "task").mkdir(parents=True)
    FAMILY.exporters.beside(adopted(source, tmp_path / "assets"), tmp_path / "assets", tmp_path / "out")
    before, after = read_archive(source), read_archive(tmp_path / "out/model.nemo")
    assert before.config_text == after.config_text and before.files == after.files
    assert before.tensors.keys() == after.tensors.keys()
    for key, tensor in before.tensors.items():
        assert tensor.dtype == after.tensors[key].dtype and torch.equal(tensor, after.tensors[key])
    with tarfile.open(source) as one, tarfile.open(tmp_path / "out/model.nemo") as other:
        theirs = {member.name.removeprefix("./") for member in one if member.isfile()}
        config, weights, *tokenizer = (member.name.removeprefix("./") for member in other)
    assert theirs == {config, weights, *tokenizer}
    assert tokenizer == sorted(tokenizer)  # a set of strings has another order in every process


EXPORT = """
import sys
from pathlib import Path
from families.transducer.test_nemo_files import exported
exported(Path(sys.argv[1]))
"""


def exported(folder):
    """The model.nemo of the same model, in this folder."""
    (folder / "task").mkdir(parents=True)
    assets = folder / "assets"
    FAMILY.exporters.beside(adopted(golden_folder("conformer") / "model.nemo", assets), assets, folder)
    return folder / "model.nemo"


@pytest.mark.recipe
def test_the_same_model_is_exported_as_the_same_bytes_in_every_process(tmp_path):
    here = exported(tmp_path / "here")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    subprocess.run([sys.executable, "-c", EXPORT, tmp_path / "there"], env=environment, check=True)
    assert here.read_bytes() == (tmp_path / "there/model.nemo").read_bytes()


@pytest.fixture
def archive():
    return read_archive(golden_folder("contextnet") / "model.nemo")


def with_config(archive, **changes):
    config = {**archive.config, **changes}
    return Archive(config, write_data(config), archive.tensors, archive.files)


def write_tar(path, members, mode="w:"):
    with tarfile.open(path, mode) as tar:
        for member, content in members:
            member = tarfile.TarInfo(member) if isinstance(member, str) else member
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def raw_members(path):
    with tarfile.open(path) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar if member.isfile()]


def test_a_compressed_archive_of_older_days_is_read_too(tmp_path):
    source = golden_folder("conformer") / "model.nemo"
    path = write_tar(tmp_path / "old.nemo", raw_members(source), "w:gz")
    assert read_archive(path).tensors.keys() == read_archive(source).tensors.keys()


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside"])
def test_a_member_that_points_out_of_the_archive_is_refused(tmp_path, name):
    members = [(name, b"x"), *raw_members(golden_folder("contextnet") / "model.nemo")]
    with pytest.raises(ModelError, match="points out of the archive"):
        read_archive(write_tar(tmp_path / "bad.nemo", members))
    assert not (tmp_path.parent / "outside").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    link = tarfile.TarInfo(WEIGHTS)
    link.type, link.linkname = kind, "/etc/passwd"
    with pytest.raises(ModelError, match="a link or a device"):
        read_archive(write_tar(tmp_path / "bad.nemo", [(link, b"")]))


def test_a_huge_member_is_refused_before_it_is_read(tmp_path):
    members = [(CONFIG, b" " * 9_000_000)]
    with pytest.raises(ModelError, match="9,000,000 bytes; at most 8,000,000 are allowed"):
        read_archive(write_tar(tmp_path / "bad.nemo", members, "w:gz"))


def test_tensors_that_are_made_to_fill_the_memory_are_refused(tmp_path, archive):
    members = [(CONFIG, archive.config_text.encode()), (WEIGHTS, bytes(50_000_000))]
    with pytest.raises(ModelError, match="50,000,000 bytes"):
        read_archive(write_tar(tmp_path / "bad.nemo", members, "w:gz"))


def test_a_member_that_is_there_twice_is_refused(tmp_path):
    with pytest.raises(ModelError, match="twice"):
        read_archive(write_tar(tmp_path / "bad.nemo", [(CONFIG, b"a: 1"), (f"./{CONFIG}", b"a: 2")]))


class Code:
    def __reduce__(self):
        return os.system, ("touch attune-was-here",)


def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path, archive, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in (pickle.dumps({"weight": Code()}, protocol=2), saved({"weight": Code()}), saved([1, 2])):
        members = [(CONFIG, archive.config_text.encode()), (WEIGHTS, content)]
        with pytest.raises(ModelError, match="plain (file|dictionary) of tensors"):
            read_archive(write_tar(tmp_path / "bad.nemo", members))
    assert not (tmp_path / "attune-was-here").exists()


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_what_is_no_archive_is_named(tmp_path):
    (tmp_path / "x.nemo").write_bytes(b"not an archive")
    with pytest.raises(ModelError) as caught:
        read_archive(tmp_path / "x.nemo")
    assert str(caught.value).endswith(
        "x.nemo is not a valid .nemo archive: file could not be opened successfully. Download it again."
    )
    with pytest.raises(ModelError, match="has no model_config.yaml"):
        read_archive(write_tar(tmp_path / "empty.nemo", [("readme", b"")]))


@pytest.mark.parametrize(
    "text", ["a: !!python/object/apply:os.system ['true']", "a: !something 1", "a: [1", "a: 2024-01-01"]
)
def test_a_configuration_with_tags_or_mistakes_is_refused(text):
    with pytest.raises(AttuneError, match="is not plain YAML"):
        read_data(text, "config")


def test_a_configuration_that_explodes_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(AttuneError, match="too many values"):
        read_data("\n".join(lines), "config")


def test_references_are_looked_up_and_never_executed():
    config = {"model_defaults": {"width": 48}, "encoder": {"d_model": "${model.model_defaults.width}"}}
    config |= {"joint": "${encoder}", "clever": "${multiply:${encoder.d_model}, 2}", "lost": "${nowhere}"}
    found = resolved(config)
    assert found["encoder"] == found["joint"] == {"d_model": 48}
    assert found["clever"] == "${multiply:${encoder.d_model}, 2}" and found["lost"] == "${nowhere}"
    with pytest.raises(ModelError, match="refers to itself"):
        resolved({"a": "${b}", "b": "${a}"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"target": "nemo.collections.asr.models.EncDecCTCModelBPE"},
            "EncDecCTCModelBPE.*attune supports RNN-T and TDT",
        ),
        ({"encoder": {"_target_": "nemo.SqueezeformerEncoder"}}, "SqueezeformerEncoder.*ContextNet"),
        ({"tokenizer": {"type": "wpe"}}, "no SentencePiece model"),
        ({"loss": {"loss_name": "multiblank_rnnt"}}, "'multiblank_rnnt'"),
        ({"preprocessor": {"normalize": "all_features"}}, "normalize is 'all_features'"),
        ({"joint": {"_target_": "nemo.HATJoint"}}, "HATJoint"),
    ],
)
def test_other_architectures_are_named_with_what_is_supported(tmp_path, archive, change, message):
    write_archive(tmp_path / "other.nemo", with_config(archive, **change))
    with pytest.raises(ModelError, match=message):
        FAMILY.importer.read(TransducerConfig(weights="x"), tmp_path / "other.nemo", tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"self_attention_model": "rel_pos_local_attn"},
        {"att_context_size": [70, 13]},
        {"conv_norm_type": "instance_norm"},
        {"causal_downsampling": True},
        {"untie_biases": False},
        {"reduction": "pooling"},
    ],
)
def test_what_a_conformer_does_otherwise_is_named(change):
    config = read_archive(golden_folder("conformer") / "model.nemo").config
    with pytest.raises(ModelError, match="attune supports|attune does not support"):
        read_shape({**config, "encoder": {**config["encoder"], **change}})


@pytest.mark.parametrize(
    "change",
    [
        {"mag_power": "1.0"},
        {"log": "false"},
        {"log_zero_guard_type": "clamp"},
        {"log_zero_guard_value": "1e-10"},
        {"log_zero_guard_value": "tiny"},
        {"exact_pad": True},
    ],
)
def test_what_a_front_end_does_otherwise_is_named(archive, change):
    (name,) = change
    with pytest.raises(
        ModelError, match=rf"preprocessor\.{name} .*(attune supports|attune does not support|not a number)"
    ):
        read_shape({**archive.config, "preprocessor": {**archive.config["preprocessor"], **change}})


def test_what_nemo_writes_of_its_front_end_by_default_is_as_if_it_were_not_written(archive):
    defaults = {"mag_power": "2.0", "log": "true", "log_zero_guard_type": "add", "preemph": "0.97", "exact_pad": False}
    written = {**archive.config["preprocessor"], **defaults, "log_zero_guard_value": "5.960464477539063e-08"}
    samples = {**written, "window_size": None, "n_window_size": "400", "window_stride": None, "n_window_stride": 160}
    expected = read_shape(archive.config)
    assert read_shape({**archive.config, "preprocessor": written}) == expected
    assert read_shape({**archive.config, "preprocessor": samples}) == expected


@pytest.mark.parametrize("preemphasis", ["0.0", None, "0.5"])
def test_a_front_end_with_another_preemphasis_hears_with_that(archive, preemphasis):
    changed = {**archive.config["preprocessor"], "preemph": preemphasis}
    shape = read_shape({**archive.config, "preprocessor": changed}).front_end
    assert shape.preemphasis == float(preemphasis or 0)
    audio, lengths = torch.randn(1, 8000, generator=torch.Generator().manual_seed(0)), torch.tensor([8000])
    before = torch.cat([torch.zeros(1, 1), audio[:, :-1]], 1)
    plain = FrontEnd(replace(shape, preemphasis=0.0)).eval()
    expected = plain(audio - shape.preemphasis * before, lengths)[0]
    assert torch.allclose(FrontEnd(shape).eval()(audio, lengths)[0], expected, atol=1e-4)


def with_durations(*durations):
    config = read_archive(golden_folder("fastconformer-tdt") / "model.nemo").config
    settings = {**config["loss"]["tdt_kwargs"], "durations": list(durations)}
    return {**config, "loss": {**config["loss"], "tdt_kwargs": settings}}


def test_durations_are_whole_numbers_however_they_are_written():
    assert read_shape(with_durations("0", 1, "2.0", 3.0)).durations == (0, 1, 2, 3)
    for wrong in ("1.5", "much"):
        with pytest.raises(ModelError, match=rf"loss\.tdt_kwargs\.durations of the .* not a .*number: '{wrong}'"):
            read_shape(with_durations("0", "1", wrong))


def test_durations_without_a_single_frame_leave_utterances_that_cannot_be_learned():
    with pytest.raises(ModelError, match=r"durations \(0, 2\) have no 1"):
        read_shape(with_durations("0", "2"))


def test_a_hybrid_model_is_the_transducer_in_it(tmp_path, archive):
    extra = {"ctc_decoder.decoder_layers.0.weight": torch.zeros(3)}
    target = "nemo.collections.asr.models.hybrid_rnnt_ctc_bpe_models.EncDecHybridRNNTCTCBPEModel"
    changed = with_config(archive, target=target, aux_ctc={"ctc_loss_weight": 0.3})
    write_archive(tmp_path / "hybrid.nemo", Archive(*_parts(changed, {**changed.tensors, **extra})))
    model = adopted(tmp_path / "hybrid.nemo", tmp_path / "assets")
    (tmp_path / "out" / "task").mkdir(parents=True)
    FAMILY.exporters.beside(model, tmp_path / "assets", tmp_path / "out")
    again = read_archive(tmp_path / "out/model.nemo")
    assert again.tensors.keys() == archive.tensors.keys() and "aux_ctc" not in again.config
    assert again.config["target"] == archive.config["target"]


def _parts(archive, tensors):
    return archive.config, archive.config_text, tensors, archive.files


@pytest.mark.parametrize("mode", ["w:", "w:gz"])
def test_one_flipped_byte_of_a_weight_is_found(tmp_path, mode):
    members = dict(raw_members(golden_folder("contextnet") / "model.nemo"))
    name = next(name for name in members if name.endswith(WEIGHTS))
    damaged = bytearray(members[name])
    damaged[len(damaged) // 2] ^= 1
    with pytest.raises(ModelError, match="the checksum of .* is wrong"):
        read_archive(write_tar(tmp_path / "bad.nemo", [*{**members, name: bytes(damaged)}.items()], mode))


def test_the_checksum_of_a_compressed_archive_is_compared(tmp_path):
    path = write_tar(tmp_path / "bad.nemo", raw_members(golden_folder("contextnet") / "model.nemo"), "w:gz")
    content = bytearray(path.read_bytes())
    content[-8] ^= 1  # of the CRC at its end
    path.write_bytes(content)
    with pytest.raises(ModelError, match="is not a valid .nemo archive: CRC check failed"):
        read_archive(path)


def test_members_that_nobody_wants_are_not_decompressed(tmp_path):
    huge = tarfile.TarInfo("unwanted")
    huge.size = 1 << 40  # of which no more is there than its header
    path = tmp_path / "bad.nemo"
    path.write_bytes(gzip.compress(huge.tobuf() + bytes(1024)))
    with pytest.raises(
        ModelError, match=r"its member 'unwanted' \(1,099,511,627,776 bytes\) it unpacks to more than 100 times"
    ):
        read_archive(path)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.REGTYPE])
def test_a_header_with_an_impossible_size_is_refused(tmp_path, kind):
    header = tarfile.TarInfo(CONFIG)
    header.type, header.size = kind, 1 << 40 if kind != tarfile.REGTYPE else -512
    path = tmp_path / "bad.nemo"
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    with pytest.raises(ModelError, match="its header claims -?[0-9,]+ bytes"):
        read_archive(path)


@pytest.mark.timeout(20)
def test_references_to_references_do_not_grow_without_bound():
    config = {f"a{depth}": {str(each): f"${{a{depth + 1}}}" for each in range(8)} for depth in range(9)}
    with pytest.raises(ModelError, match="expand to more than 500,000 values"):
        resolved(config)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("n_layers", 10**7, r"encoder\.n_layers of the configuration is 1e\+07; expected 1 to 1,000"),
        ("n_layers", -3, r"encoder\.n_layers of the configuration is -3; expected 1 to 1,000"),
        ("d_model", "nan", r"encoder\.d_model of the configuration is not a number: 'nan'"),
        ("d_model", 1e300, r"encoder\.d_model of the configuration is 1e\+300; expected 1 to 1,000,000"),
        ("d_model", 900_000, "describes .* weights; attune reads at most 10,000,000,000"),
        ("d_model", 8_000, "describes a model of at least .* weights but has"),
        ("dropout", 7, r"encoder\.dropout of the configuration is 7; expected 0 to 1"),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_it_is_built(tmp_path, key, value, message):
    archive = read_archive(golden_folder("conformer") / "model.nemo")
    path = tmp_path / "bad.nemo"
    write_archive(path, with_config(archive, encoder={**archive.config["encoder"], key: value}))
    with pytest.raises(ModelError, match=message):
        import_weights(path, tmp_path)


def test_a_sentencepiece_model_with_bytes_that_are_no_text_is_named(tmp_path):
    archive = read_archive(golden_folder("contextnet") / "model.nemo")
    name = tokenizer_files(archive.config)["model_path"]
    *_, (_, field, content) = (each for each in fields(archive.files[name]) if each[0] == 1)  # the last piece
    broken = archive.files[name].replace(field, field.replace(content[2 : 2 + content[1]], b"\xff" * content[1]), 1)
    (tmp_path / "a.model").write_bytes(broken)
    with pytest.raises(ModelError, match=r"a\.model is damaged: a token in it is not UTF-8 text"):
        _ = OwnPieces(tmp_path / "a.model").pieces
