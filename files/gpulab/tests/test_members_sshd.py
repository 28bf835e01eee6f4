from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.sshd import DROP_IN, MAIN, check

INCLUDE = "Include /etc/ssh/sshd_config.d/*.conf\n"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {MAIN: INCLUDE},
        {MAIN: "# comment\n  include   /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile .ssh/authorized_keys\n"},
        {MAIN: INCLUDE + "AuthorizedKeysFile=%h/.ssh/authorized_keys .ssh/authorized_keys2\n"},
        {MAIN: INCLUDE + 'AuthorizedKeysFile "none"\n'},
        {MAIN: INCLUDE + "Match User git\n  AuthorizedKeysFile /srv/git/keys\n"},
        {MAIN: INCLUDE, "/etc/ssh/sshd_config.d/90-own.conf": "AuthorizedKeysFile .ssh/authorized_keys\n"},
        {MAIN: INCLUDE, "/etc/ssh/sshd_config.d/10-cloud.conf": "PasswordAuthentication no\n"},
    ],
)
def test_settings_that_go_together_pass(files):
    check(files, extra=())


def test_a_file_named_by_the_admin_passes():
    files = {MAIN: INCLUDE + "AuthorizedKeysFile /srv/keys/%u .ssh/authorized_keys\n"}
    check(files, extra=["/srv/keys/%u"])


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({MAIN: INCLUDE + "AuthorizedKeysFile /srv/keys/%u\n"}, f"{MAIN} line 2 lets sshd read keys from /srv/keys/%u"),
        (
            {MAIN: INCLUDE, "/etc/ssh/sshd_config.d/90-x.conf": "#\nauthorizedkeysfile /srv/%u\n"},
            "/etc/ssh/sshd_config.d/90-x.conf line 2 lets sshd read keys from /srv/%u",
        ),
        (
            {MAIN: "AuthorizedKeysFile .ssh/authorized_keys\n" + INCLUDE},
            f"{MAIN} line 1 sets AuthorizedKeysFile before",
        ),
        (
            {MAIN: INCLUDE, "/etc/ssh/sshd_config.d/10-x.conf": "AuthorizedKeysFile .ssh/authorized_keys\n"},
            f"/etc/ssh/sshd_config.d/10-x.conf line 1 sets AuthorizedKeysFile before {DROP_IN}",
        ),
        ({MAIN: "Port 22\n"}, f"{MAIN} does not read the folder"),
        ({MAIN: "Match all\n" + INCLUDE}, f"{MAIN} does not read the folder"),
    ],
)
def test_what_would_shut_somebody_out_is_refused(files, line):
    with pytest.raises(InputError) as caught:
        check(files, extra=())
    assert line in str(caught.value)
