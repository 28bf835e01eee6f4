from __future__ import annotations

import pytest
from gpulab.errors import InputError, UnsafeFileError
from gpulab.rules.windows import parse_windows
from gpulab.settings import Settings, Windows, load, load_file, parse, to_document


def write(root, text, name="gpulab.toml"):
    folder = root / "etc" / "gpulab"
    (folder / "conf.d").mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_without_a_file_the_defaults_hold(tmp_path):
    assert load(tmp_path) == Settings()


def test_each_role_brings_its_section(tmp_path):
    write(tmp_path, '[lab]\nname = "Vision lab"\n')
    write(tmp_path, "[booking]\nmax_hours = 24\n", "conf.d/booking.toml")
    found = load(tmp_path)
    assert (found.lab.name, found.booking.max_hours) == ("Vision lab", 24.0)


def test_a_section_stands_in_one_file_only(tmp_path):
    write(tmp_path, "[booking]\nmax_hours = 24\n")
    write(tmp_path, "[booking]\nmax_hours = 12\n", "conf.d/booking.toml")
    with pytest.raises(InputError, match=r"conf.d/booking.toml: section \[booking\] stands in another"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[lab]\nnmae = 'x'", r"\[lab\] nmae is unknown; expected one of name"),
        ("[lba]\nname = 'x'", r"section \[lba\] is unknown"),
        ("lab = 1", r"lab must be a section"),
        ("[booking]\nmax_hours = 'long'", "max_hours is 'long'; expected float"),
        ("[booking]\nmax_days_ahead = true", "max_days_ahead is True; expected int"),
        ("[checks]\nignore_users = [1]", r"ignore_users is \[1\]; expected tuple"),
        ("[lab\n", "gpulab.toml: "),
        ("[windows]\ntable = 3", r"\[windows\] table is 3; give a list of windows"),
        ("[windows]\ntable = [{name = 'w', from = '08:00', to = '09:00'}]", "table, entry 1: class is missing"),
        ("[windows]\non_break = 'kill'", r"\[windows\] on_break is 'kill'; expected warn or refuse"),
        ("[windows]\non_break = 1", "on_break is 1; expected warn or refuse"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as refused:
        load_file(path)
    assert str(path) in str(refused.value)


WINDOW = '{name = "day", from = "06:00", to = "18:00", class = "short", max_cards = 1, text = {en = "x", zh = "y"}}'


def test_windows_are_an_array_of_tables_and_the_usual_ones_have_a_name(tmp_path):
    (day,) = load_file(write(tmp_path, f"[windows]\ntable = [{WINDOW}]\n")).windows.table
    assert (day.hours, day.max_cards, day.zh) == ("06:00-18:00", 1, "y")
    assert load_file(write(tmp_path, "[windows]\ntable = []")).windows.table == ()
    usual = load_file(write(tmp_path, '[windows]\ntable = "usual"')).windows
    assert usual == Windows()
    assert len(usual.table) == 3


def test_all_settings_can_be_written_and_read_back(tmp_path):
    settings = load_file(write(tmp_path, f'[windows]\ntable = [{WINDOW}]\non_break = "refuse"\n[lab]\nname = "x"\n'))
    assert settings.windows.strict
    document = to_document(settings)
    assert parse_windows(document["windows"]["table"]) == settings.windows.table
    assert parse(document, source="x") == settings


def test_a_link_is_not_followed(tmp_path):
    path = write(tmp_path, "")
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(UnsafeFileError):
        load(tmp_path)
