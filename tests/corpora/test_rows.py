import pytest

from attune.corpora._rows import BadRow, read_row


def test_a_row_is_read_with_its_own_names():
    row = read_row(
        b'{"id": "u1", "audio": "a.wav", "start": 1.5, "seconds": 2, "text": "Hi", "speaker": 7, "language": "no"}'
    )
    assert (row.id, row.audio, row.start, row.seconds) == ("u1", "a.wav", 1.5, 2.0)
    assert (row.text, row.speaker, row.language, row.labels) == ("Hi", "7", "no", {})


@pytest.mark.parametrize("audio", ["audio", "audio_filepath", "path", "wav"])
@pytest.mark.parametrize("text", ["text", "sentence", "transcript"])
def test_a_row_is_read_with_the_names_of_other_toolkits(audio, text):
    row = read_row(f'{{"{audio}": "a.wav", "{text}": "Hi", "duration": 2.5, "offset": 1}}'.encode())
    assert (row.audio, row.text, row.seconds, row.start, row.labels) == ("a.wav", "Hi", 2.5, 1.0, {})


def test_other_plain_fields_and_nested_labels_become_labels():
    row = read_row(
        b'{"id": "u", "text": "t", "age": 30, "native": true, "tokens": [1], "none": null, "labels": {"x": 1.5}}'
    )
    assert row.labels == {"age": "30", "native": "true", "x": "1.5"}


def test_an_id_is_made_of_the_audio_path_and_the_start():
    assert read_row(b'{"audio": "s1/a.wav"}').id == "s1/a.wav"
    assert read_row(b'{"audio": "s1/a.wav", "start": 1.5}').id == "s1/a.wav@1.5"


def test_numbers_may_be_written_as_text():
    assert read_row(b'{"audio": "a.wav", "seconds": "2.5"}').seconds == 2.5


def test_a_byte_order_mark_is_no_part_of_the_row():
    assert read_row(b'\xef\xbb\xbf{"audio": "a.wav"}').audio == "a.wav"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "u", ', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"audio": "\\ud800"}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'["u", "a.wav"]', "not a JSON object"),
        (b'{"text": "Hi"}', "neither id nor audio"),
        (b'{"id": "", "audio": "", "text": "Hi"}', "neither id nor audio"),
        (b'{"id": "u"}', "neither audio nor text"),
        (b'{"id": "u", "text": " "}', "empty text"),
        (b'{"id": "u", "audio": "a.wav", "sentence": ""}', "empty text"),
        (b'{"id": "u", "audio": "a.wav", "seconds": 0}', "seconds is 0.0; expected more than 0"),
        (b'{"id": "u", "audio": "a.wav", "seconds": -1}', "seconds is -1.0; expected more than 0"),
        (b'{"id": "u", "audio": "a.wav", "seconds": NaN}', "seconds is nan; expected a number"),
        (b'{"id": "u", "audio": "a.wav", "seconds": 1' + b"0" * 400 + b"}", "expected a number"),
        (b'{"id": "u", "audio": "a.wav", "seconds": 1e308}', r"seconds is 1e\+308; expected a number"),
        (b'{"id": "u", "audio": "a.wav", "start": 1e308}', r"start is 1e\+308; expected a number"),
        (b'{"id": "u", "audio": "a.wav", "seconds": true}', "seconds is True; expected a number"),
        (b'{"id": "u", "audio": "a.wav", "duration": "long"}', "seconds is 'long'; expected a number"),
        (b'{"id": "u", "audio": "a.wav", "start": -0.1}', "start is -0.1; expected 0 or more"),
        (b'{"id": "u", "audio": {"path": "a.wav"}}', "audio is {'path': 'a.wav'}; expected text"),
        (b'{"id": "u", "text": "t", "labels": {"x": [1]}}', r"x is \[1\]; expected text"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(line, reason):
    with pytest.raises(BadRow, match=reason):
        read_row(line)


def test_a_bad_row_keeps_its_id():
    with pytest.raises(BadRow) as bad:
        read_row(b'{"id": "u1", "audio": "a.wav", "seconds": "long"}')
    assert bad.value.id == "u1"


def test_text_without_audio_needs_no_length():
    assert read_row(b'{"id": "u", "text": "Hi", "seconds": 0}').audio is None


def test_a_number_of_thousands_of_digits_is_no_channel():
    row = read_row(b'{"audio": "a.wav", "channel": "%s"}' % (b"9" * 5000))
    assert row.channel is None and len(row.labels["channel"]) == 5000
