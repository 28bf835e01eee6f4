"""The list of members as people write it, and as they get it wrong."""

from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.members import Member, parse_members, require_admin
from hypothesis import given
from hypothesis import strategies as st
from test_ssh_keys import ED25519, SHORT_RSA

ALICE = {"name": "alice", "admin": True}


def test_a_full_entry_is_read():
    member = parse_members(
        [
            {
                "name": "alice",
                "uid": 1234,
                "full_name": "爱丽丝",
                "mail": "alice+lab@mail.example.org",
                "ssh_keys": [f"{ED25519} laptop", f"{ED25519} the same key again"],
                "groups": ["vision", "vision"],
                "admin": True,
                "shell": "/usr/bin/zsh",
                "state": "present",
            }
        ]
    )[0]
    assert (member.name, member.uid, member.full_name, member.groups) == ("alice", 1234, "爱丽丝", ("vision",))
    assert [key.comment for key in member.ssh_keys] == ["laptop"]


def test_only_the_name_is_needed_and_none_means_not_given():
    nothing = dict.fromkeys(["uid", "full_name", "mail", "ssh_keys", "groups", "shell", "state"])
    assert parse_members([ALICE, {"name": "bob"} | nothing])[1] == Member("bob")


def test_who_left_is_not_present():
    assert [member.present for member in parse_members([ALICE, {"name": "bob", "state": "absent"}])] == [True, False]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"name": "root"}, "lab_members: the name root belongs to the system; choose another name for this member"),
        ({"name": "admin"}, "the name admin belongs to the system"),
        ({"name": "sudo"}, "the name sudo belongs to the system"),
        ({"name": "gpu-admins"}, "the name gpu-admins belongs to the system"),
        ({"name": "a;b"}, "lab_members: 'a;b' is not a usable name; a name is 1 to 32 characters"),
        ({"name": "Bob"}, "'Bob' is not a usable name"),
        ({"name": "bob\n"}, r"'bob\n' is not a usable name"),
        ({"name": "-rf"}, "'-rf' is not a usable name"),
        ({"name": "b" * 33}, "is not a usable name"),
        ({"name": "../etc"}, "'../etc' is not a usable name"),
        ({"name": 7}, "7 is not a usable name"),
        ({"name": ["bob"]}, "['bob'] is not a usable name"),
        ({"uid": 1001}, "lab_members, entry 2: name is missing; each member needs one"),
        ({"nmae": "bob"}, "lab_members, entry 2: the key 'nmae' is unknown; did you mean name?"),
        (
            {"name": "bob", "sshkeys": []},
            "lab_members, member bob: the key 'sshkeys' is unknown; did you mean ssh_keys?",
        ),
        ({"name": "bob", "colour": 1}, "the key 'colour' is unknown; known keys are name, uid, full_name"),
        ({"name": "bob", 7: 1}, "the key 7 is unknown"),
        ("bob", "lab_members, entry 2 is 'bob'; give a mapping that begins with `name:`"),
        ({"name": "bob", "uid": 0}, "lab_members, member bob: uid is 0; numbers of people go from 1000 to 59999"),
        ({"name": "bob", "uid": 999}, "uid is 999"),
        ({"name": "bob", "uid": 60000}, "uid is 60000"),
        ({"name": "bob", "uid": 65534}, "uid is 65534"),
        ({"name": "bob", "uid": "1001"}, "uid is '1001'; give a number from 1000 to 59999, without quotes"),
        ({"name": "bob", "uid": True}, "uid is True"),
        ({"name": "bob", "full_name": "a:b"}, "full_name is 'a:b'; the account file has no room"),
        ({"name": "bob", "full_name": "a\nroot::0:0::/:/bin/sh"}, "full_name is 'a\\nroot"),
        ({"name": "bob", "full_name": "x" * 101}, "give one line of at most 100 characters"),
        ({"name": "bob", "mail": "bob"}, "lab_members, member bob: mail is 'bob'; give one plain address"),
        ({"name": "bob", "mail": "bob@localhost"}, "mail is 'bob@localhost'"),
        ({"name": "bob", "mail": "bob@example.org\nroot: other@example.org"}, "mail is 'bob@example.org\\nroot"),
        ({"name": "bob", "mail": "bob@example.org\n"}, "mail is"),
        ({"name": "bob", "mail": "|/bin/sh@example.org"}, "mail is '|/bin/sh@example.org'"),
        ({"name": "bob", "mail": "-f@example.org"}, "mail is '-f@example.org'"),
        ({"name": "bob", "mail": "bob@example.org, carol@example.org"}, "give one plain address"),
        ({"name": "bob", "mail": "bob@" + "x" * 10_000 + ".org"}, "mail is"),
        ({"name": "bob", "ssh_keys": ED25519}, "give a list of .pub lines"),
        ({"name": "bob", "ssh_keys": [ED25519, "no key"]}, "member bob: ssh_keys, key 2 begins with 'no'"),
        ({"name": "bob", "ssh_keys": [SHORT_RSA]}, "member bob: ssh_keys, key 1 is an RSA key of 1024 bits"),
        ({"name": "bob", "groups": ["sudo"]}, "groups is 'sudo'; that group belongs to the system"),
        ({"name": "bob", "groups": ["docker"]}, "groups is 'docker'"),
        ({"name": "bob", "groups": ["gpu-admins"]}, "use `admin: true`"),
        ({"name": "bob", "groups": ["a,b"]}, "groups is 'a,b'"),
        ({"name": "bob", "groups": ["alice"]}, "groups is 'alice'; that is another member's own group"),
        ({"name": "bob", "groups": "vision"}, "give a list of group names"),
        ({"name": "bob", "admin": "yes"}, "admin is 'yes'; give true or false"),
        ({"name": "bob", "shell": "bash"}, "shell is 'bash'; give the absolute path"),
        ({"name": "bob", "shell": "/bin/sh\n"}, "shell is"),
        ({"name": "bob", "shell": "/bin/../tmp/x"}, "shell is"),
        ({"name": "bob", "shell": "/bin/sh:x"}, "shell is"),
        ({"name": "bob", "state": "gone"}, "state is 'gone'; give present or absent"),
        ({"name": "bob", "state": ["absent"]}, "state is ['absent']"),
        (ALICE, "lab_members: entries 1 and 2 are both named alice; remove one"),
    ],
)
def test_a_wrong_entry_is_refused_in_one_line(entry, line):
    with pytest.raises(InputError) as caught:
        parse_members([ALICE, entry])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_one_uid_for_two_is_refused():
    with pytest.raises(InputError, match="bob and carol both have uid 1001; give one another number"):
        parse_members([ALICE, {"name": "bob", "uid": 1001}, {"name": "carol", "uid": 1001, "state": "absent"}])


@pytest.mark.parametrize("raw", [[], ()])
def test_an_empty_list_is_refused(raw):
    with pytest.raises(InputError, match="lab_members is empty; list at least the admin"):
        parse_members(raw)


@pytest.mark.parametrize("raw", ["alice", {"alice": {}}, None, 7])
def test_what_is_no_list_is_refused(raw):
    with pytest.raises(InputError, match="give a list of members"):
        parse_members(raw)


@pytest.mark.parametrize("entry", [{"name": "bob"}, {"name": "bob", "admin": True, "state": "absent"}])
def test_a_list_without_a_present_admin_is_refused(entry):
    with pytest.raises(InputError, match="no present member with `admin: true`"):
        parse_members([entry])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("alice", ""),
        ("nobody-here", "lab_admin is 'nobody-here', who is not in lab_members; name one of: alice"),
        ("bob", "lab_admin is bob, who has no `admin: true` in lab_members; add it or name alice"),
        ("carol", "lab_admin is carol, who left (state: absent); name one of: alice"),
        ("x\ny", r"lab_admin is 'x\ny'"),
    ],
)
def test_the_person_in_charge_is_a_present_admin(name, line):
    members = parse_members([ALICE, {"name": "bob"}, {"name": "carol", "admin": True, "state": "absent"}])
    if not line:
        assert require_admin(members, name).name == name
        return
    with pytest.raises(InputError) as caught:
        require_admin(members, name)
    assert line in str(caught.value)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["name", "uid", "full_name", "mail", "ssh_keys", "groups", "admin", "shell", "state"])


@given(st.lists(st.dictionaries(KEYS, JUNK, max_size=9) | JUNK, max_size=3) | JUNK)
def test_junk_is_refused_or_read_but_never_a_traceback(raw):
    try:
        members = parse_members(raw)
    except InputError as error:
        lines = str(error).splitlines()
    else:
        lines = [member.name for member in members][:1]
    assert len(lines) == 1
