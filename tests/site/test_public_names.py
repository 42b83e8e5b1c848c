"""The list of public names is that of the code; a release notices a name that is gone."""

from public_names import LIST, ROOT, changes, public_names, unmentioned


def test_the_list_is_complete():
    """A name that was added, changed or removed is in the list once ``make names`` has run."""
    assert changes((ROOT / LIST).read_text().splitlines(), public_names()) == []


def test_a_name_that_is_gone_is_mentioned_in_the_changelog():
    before = ["key: a.b = 1", "key: c = 2", "flag: verb --old", "figure: x [ms]"]
    changed = changes(before, ["key: a.b = 3", "flag: verb --new", "figure: x [ms]"])
    assert changed == [
        "- key: a.b = 1",
        "- key: c = 2",
        "- flag: verb --old",
        "+ key: a.b = 3",
        "+ flag: verb --new",
    ]
    assert unmentioned(changed, "`c` is gone") == ["flag: verb --old"]
    assert unmentioned(changed, "`--old` is `--new` now, c goes") == []
