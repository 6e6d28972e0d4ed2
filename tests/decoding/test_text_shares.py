from attune.decoding.text_shares import share_words


def test_each_part_gets_the_words_that_were_recognized_in_it():
    assert share_words("One two, three four", ["one two", "", "three four"]) == ["One two,", "", "three four"]


def test_letters_and_numbers_stay_with_what_was_recognized_of_them():
    text = "P I T T S B U R G H ENTER TWENTY THREE R G C S SEVEN"
    shares = ["P I T T S B U R G H ENTER TWENTY THREE", "R G C S SEVEN"]
    assert share_words(text, ["P-I-T-T-S-B-U-R-G-H. Enter 23.", "RGCS 7"]) == shares


def test_what_was_not_recognized_goes_with_what_is_before_or_with_the_first_that_follows():
    assert share_words("so one two quite three", ["", "one two", "three"]) == ["", "so one two quite", "three"]
    assert share_words("übel fünf gut", ["Übel", "fünf gut"]) == ["übel", "fünf gut"]
    assert share_words("one two", ["", ""]) == ["one two", ""]
    assert share_words("… one", ["one"]) == ["… one"]
