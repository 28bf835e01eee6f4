from __future__ import annotations

import pytest
from gpulab.errors import InputError, UnsafeFileError
from gpulab.settings import Settings, load, load_file


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
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as refused:
        load_file(path)
    assert str(path) in str(refused.value)


def test_a_link_is_not_followed(tmp_path):
    path = write(tmp_path, "")
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(UnsafeFileError):
        load(tmp_path)
