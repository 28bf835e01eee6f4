from __future__ import annotations

import os

import pytest
from gpulab.adapters import accounts, starters
from gpulab.errors import GpulabError, InputError, UnsafeFileError
from gpulab.rules.accounts import home_mode, ordinary_home


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/bash\n"
        "alice:x:1000:1000:Alice,room 7,,:/home/alice:/bin/bash\n"
        "alice:x:2000:2000:a second line:/tmp:/bin/sh\n"
        "bob:x:1001:1001:::\n"
        "+@netgroup::::::\n"
        "broken:x:many:1:::\n"
        "# a comment\n\n"
    )
    (tmp_path / "etc/shadow").write_text(
        "root:*:20000:0:99999:7:::\nalice:!$y$hash:20000:0:99999:7::1:\nbob:!:20000:0:99999:7:::\n"
    )
    (tmp_path / "etc/group").write_text("root:x:0:\nvision:x:1500:alice,bob\nbroken:x:?:\n+:::\n")
    return tmp_path


def test_accounts_are_read_with_what_shadow_says(root):
    found = accounts.read_accounts(root)
    assert list(found) == ["root", "alice", "bob"]
    alice, bob = found["alice"], found["bob"]
    assert (alice.uid, alice.full_name, alice.home) == (1000, "Alice", "/home/alice")
    assert (alice.locked, alice.has_password, alice.expire_day) == (True, True, 1)
    assert (bob.shell, bob.locked, bob.has_password, bob.expire_day) == ("/bin/sh", True, False, None)


def test_no_hash_leaves_the_reader(root):
    assert "hash" not in repr(accounts.read_accounts(root))


def test_groups_are_read(root):
    groups = accounts.read_groups(root)
    assert list(groups) == ["root", "vision"]
    assert groups["vision"].members == {"alice", "bob"}


def test_an_account_without_shadow_line_is_noticed(root):
    (root / "etc/shadow").write_text("")
    assert not accounts.read_accounts(root)["bob"].in_shadow


def test_an_account_file_that_is_a_link_is_not_read(root):
    (root / "etc/passwd").rename(root / "passwd")
    (root / "etc/passwd").symlink_to(root / "passwd")
    with pytest.raises(UnsafeFileError):
        accounts.read_accounts(root)


def test_lent_numbers_are_read_and_may_be_missing(root):
    assert accounts.read_subuids(root) == {}
    (root / "etc/subuid").write_text("bob:100000:65536\nbob:300000:10\nx:y:z\n")
    assert accounts.read_subuids(root) == {"bob": [range(100000, 165536), range(300000, 300010)]}


@pytest.mark.parametrize(
    ("kept", "calls"),
    [
        ("alice,bob", [["gpasswd", "--members", "alice,root", "vision"]]),
        # Somebody of a directory service's: gpasswd would refuse a list with a name it does not know.
        (
            "alice,bob,ldap",
            [["gpasswd", "--add", "root", "vision"], ["gpasswd", "--delete", "bob", "vision"]],
        ),
    ],
)
def test_a_group_changes_in_one_call_where_that_is_possible(root, kept, calls):
    (root / "etc/group").write_text(f"vision:x:1500:{kept}\n")
    made = []
    accounts.change_group(lambda argv: made.append(list(argv)), "vision", add=["root"], remove=["bob"], root=root)
    assert made == calls


def test_a_group_that_is_not_there_is_an_error(root):
    with pytest.raises(GpulabError, match="there is no group nowhere"):
        accounts.change_group(lambda _: None, "nowhere", add=["root"], remove=[], root=root)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["false"], "false ended with 1: no message"),
        (["ls", "--no-such-option"], "ls ended with 2: Try 'ls --help' for more information."),
        (["no-such-program-anywhere"], "no-such-program-anywhere is not installed"),
    ],
)
def test_a_tool_that_fails_is_named_with_its_last_words(argv, line):
    with pytest.raises(GpulabError) as caught:
        accounts.run_command(argv)
    assert line in str(caught.value)


def test_tools_get_names_as_arguments_not_as_shell_words(tmp_path):
    marker = tmp_path / "marker"
    accounts.run_command(["true", f"$(touch {marker})", f"; touch {marker}"])
    assert not marker.exists()


def test_what_starts_by_itself_is_found_and_removed(tmp_path):
    for path in ("cron/crontabs/bob", "cron/crontabs/alice", "cron/atjobs/a00001", "cron/atjobs/.SEQ"):
        target = tmp_path / "var/spool" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("")
    linger = tmp_path / "var/lib/systemd/linger"
    linger.mkdir(parents=True)
    (linger / "bob").write_text("")
    assert starters.crontabs(tmp_path) == {"alice", "bob"}
    assert starters.lingering(tmp_path) == {"bob"}
    assert starters.at_jobs(tmp_path) == {os.geteuid(): ("a00001",)}
    for _ in range(2):
        starters.remove(tmp_path, "bob", ("a00001",))
    assert starters.crontabs(tmp_path) == {"alice"}
    assert starters.lingering(tmp_path) == frozenset()
    assert starters.at_jobs(tmp_path) == {}


def test_a_server_without_cron_and_at_has_nothing_to_remove(tmp_path):
    assert starters.crontabs(tmp_path) == frozenset()
    assert starters.at_jobs(tmp_path) == {}
    starters.remove(tmp_path, "bob", ())


def test_only_shells_that_can_be_run_count(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bash").write_text("")
    (tmp_path / "bin/bash").chmod(0o755)
    (tmp_path / "bin/text").write_text("")
    assert accounts.runnable(tmp_path, ["/bin/bash", "/bin/text", "/bin", "/bin/zsh", "bash"]) == {"/bin/bash"}


@pytest.mark.parametrize(
    ("home", "ordinary"),
    [
        ("/home/bob", True),
        ("/data/people/bob", True),
        ("/var/home/bob", True),
        ("/", False),
        ("/home", False),
        ("/bob", False),
        ("/etc/bob", False),
        ("/usr/share/bob", False),
        ("/home/admin", False),
        ("/home/admin/bob", False),
        ("/home/../etc/bob", False),
        ("/home//bob", False),
        ("//home/bob", False),
        ("home/bob", False),
        ("", False),
    ],
)
def test_which_paths_are_one_persons_home(home, ordinary):
    assert ordinary_home(home) is ordinary


def test_home_mode_lets_only_the_owner_write():
    assert home_mode("0750") == home_mode("750") == 0o750
    for text in ("0770", "0777", "0050", "rwx", "01750", "", "0o750", "8"):
        with pytest.raises(InputError, match="members_home_mode"):
            home_mode(text)
