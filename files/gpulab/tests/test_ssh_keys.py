from __future__ import annotations

import base64
import os
import struct

import pytest
from gpulab.errors import InputError
from gpulab.rules.ssh_keys import parse_key
from hypothesis import given
from hypothesis import strategies as st

# Made by ssh-keygen for this test; the private halves were thrown away.
REAL = {
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDCIMYaBhYlwF9HHl27mtSARJVdk65gf3Gb2qvrBMxQf": (
        "SHA256:rUVaR8zSx5GpN4v2N6v/4hNw2SzAiWoNYuhMrc/4Kvw"
    ),
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMeo8QqfktbgAQkvj9rctEy/BWpll8/cPXkqMRQX"
    "+IK21Pkx9AQvNUxULVUuR+wYdg76DmHb1R4G/UvBK9g4aY4=": "SHA256:xODlV5cX7lH2eGpUda2hhq4GI5lZaBfDSkilsbNQpGY",
    "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBADzPOY0VJ5aawNJkJ4r5aLNNzfrQJsrU1RXb8SK"
    "H71iJ2Om/lcj4aHEhXzEHmRz5YF8DkWbRFD6p4I66Hl3QfJfOgEvZh8wC2CW1On32H2z6zlus6fiYgS/iErmJ9wAdEkmq3qqv0S/RoajsoLOhYqx"
    "fRUaFOZBvSNVYBNpMn+WM+AGPA==": "SHA256:c3Mo+Vk9b9aEtEJsz7CAiVp9yFQSNUsQn5T53k0Ipg0",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCyuZ9Rn+IZGCKcZ24P+n+sJC2Ydw5H44vQfpuG9SOqNyABfggDEPpn6IEvbiJbVp5RsSN4H4Wu"
    "HKhHayB5lnGimiw2ulqzzZHWNFohX5Kk1+LHsQywtt/GC2yTmq7+OmtZL1r3LTi3yPD9JX3jpBjp96L2WzBOT7x+glLUAziCkdkj/LQJqkzXAYZ/"
    "JOt2PZlRkp1S0e4EjYszengMeYiXycN7pwJSu2mWSeuzW9i8pAoWJBITKtR1xOZKp/CKLqGi0B8Q+JGCTqIjM+Aa4W8K1WJKKB0IVM1HTrEcpayM"
    "BFr8LF8hsIHySc/r9pCMPlxsqvLwBBVS4GGqAL77nhZx": "SHA256:f/BWBi0PwP/6tbCFU92KcB0JWqd7O344fz9LavqBEAY",
}
ED25519 = next(iter(REAL))
SHORT_RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCedP//WHeG65cln1xGpyHOcdW1detTu3JGt6yzu9hkdS9M589g1kV0AmgjzqioyLp/GvTk/7yj"
    "tuPCe8WKGAOy/s/4MsNuq8OD2Q3/eQb7IqUUBAK48GyeCPZ69D2NZHy5vB7n99UWbGDdH6cBEnLN2Xsj3y5rXXjWsl4X3tiYfw=="
)


def encoded(*fields: bytes) -> str:
    return base64.b64encode(b"".join(struct.pack(">I", len(field)) + field for field in fields)).decode()


@pytest.mark.parametrize("text", REAL)
def test_real_keys_are_read(text):
    key = parse_key(f"  {text}   alice@laptop in the lab\r\n")
    assert key.fingerprint == REAL[text]
    assert key.line == f"{text} alice@laptop in the lab"


def test_keys_of_security_keys_are_read():
    blob = encoded(b"sk-ssh-ed25519@openssh.com", os.urandom(32), b"ssh:")
    assert parse_key(f"sk-ssh-ed25519@openssh.com {blob}").kind == "sk-ssh-ed25519@openssh.com"
    blob = encoded(b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\x04" + bytes(64), b"ssh:")
    assert parse_key(f"sk-ecdsa-sha2-nistp256@openssh.com {blob}")


def test_two_keys_that_differ_only_in_their_comment_are_the_same():
    assert parse_key(f"{ED25519} laptop") == parse_key(f"{ED25519} desk")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with ''"),
        ("hello", "begins with 'hello', which is no key type"),
        ("ssh-ed25519", "stops after ssh-ed25519"),
        ("ssh-ed25519 !!!", "not base64"),
        ("ssh-ed25519 AAAA", "is cut short"),
        (ED25519[:-4], "is cut short or altered"),
        (ED25519.replace("ssh-ed25519", "ssh-rsa"), "says ssh-rsa but holds a key of type 'ssh-ed25519'"),
        (f"ssh-ed25519 {encoded(b'ssh-ed25519', bytes(31))}", "is cut short or altered"),
        (f"ssh-ed25519 {encoded(b'ssh-ed25519', bytes(32), b'more')}", "is cut short or altered"),
        (
            f"ecdsa-sha2-nistp256 {encoded(b'ecdsa-sha2-nistp256', b'nistp384', bytes(65))}",
            "is cut short or altered",
        ),
        (f"ssh-rsa {encoded(b'ssh-rsa', bytes([3]), bytes([255]) * 256)}", "is not an RSA key"),
        (SHORT_RSA, "is an RSA key of 1024 bits"),
        (f"ssh-dss {encoded(b'ssh-dss', bytes(20))}", "is a DSA key"),
        (f'command="sh" {ED25519}', "key options are not accepted"),
        (f"{ED25519} a\n{ED25519} b", "spans several lines"),
        (f"{ED25519} \x1b[2J", "spans several lines"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "which is no key type"),
        ("~/.ssh/id_ed25519.pub", "a path; give what the file holds"),
        ("ssh-ed25519 " + "A" * 10_000, "is too long"),
    ],
)
def test_what_is_no_usable_key_is_refused_with_a_reason(text, reason):
    with pytest.raises(InputError) as caught:
        parse_key(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_private_key_is_refused_without_being_repeated():
    with pytest.raises(InputError, match="private key") as caught:
        parse_key("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n")
    assert "c2VjcmV0" not in str(caught.value)


@given(st.binary(max_size=200))
def test_no_blob_makes_it_fall_over(blob):
    for kind in ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "sk-ssh-ed25519@openssh.com"):
        try:
            key = parse_key(f"{kind} {base64.b64encode(blob).decode()}")
        except InputError:
            continue
        assert key.blob == blob
