"""OpenSSH public keys, checked down to the numbers inside before they open a door.

Formats: RFC 4253 section 6.6 (the blob, ssh-rsa), RFC 5656 section 3.1 (ecdsa), RFC 8709 section 4 (ed25519) and
OpenSSH's PROTOCOL.u2f (security keys). Key options (`command=`, `from=`) and certificates are not accepted: the list
of members says who may log in, not how.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field

from ..errors import InputError

RSA_MINIMUM_BITS = 2048
"""NIST SP 800-131A calls shorter keys no longer acceptable; recent distributions' sshd refuses them as well."""

_RSA_MAXIMUM_BITS = 16384
_LIMIT = 8192
_COMMENT_LIMIT = 200
_POINT_BYTES = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
_ED25519_BYTES = 32
_UNCOMPRESSED = 4
_KINDS = (
    "ssh-ed25519",
    "ssh-rsa",
    *(f"ecdsa-sha2-{curve}" for curve in _POINT_BYTES),
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_REMEDY = "paste the one line of a .pub file, such as ~/.ssh/id_ed25519.pub"


@dataclass(frozen=True)
class SshKey:
    """One public key.

    Attributes:
        kind: key type, such as `ssh-ed25519`.
        blob: the key itself, as sent on the wire.
        comment: free text after the key; two keys that differ only here are the same key.
    """

    kind: str
    blob: bytes
    comment: str = field(default="", compare=False)

    @property
    def line(self) -> str:
        """The line for an authorized_keys file, without its end."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()} {self.comment}".rstrip()

    @property
    def fingerprint(self) -> str:
        """What `ssh-keygen -l` prints, such as `SHA256:...`."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")


def parse_key(text: str) -> SshKey:
    """Read the content of a .pub file.

    Args:
        text: one line `type base64 [comment]`; a newline at its end is fine.

    Raises:
        InputError: it is not a public key that may be used; the message completes "the key ...".
    """
    if "PRIVATE KEY" in text:
        # Not echoed: what stands here is a secret, or was one.
        raise InputError(
            "is a private key, which is now known to everyone who reads this inventory; make a new pair with "
            "ssh-keygen and give its .pub line"
        )
    text = text.strip(" \t\r\n")
    if len(text) > _LIMIT or not text.isprintable():
        raise InputError(f"is too long, or spans several lines; {_REMEDY}")
    if text.startswith(("/", "~")):
        raise InputError(f"is {text[:80]!r}, a path; give what the file holds")
    kind, _, rest = text.partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if kind in {"ssh-dss", "ssh-dsa"}:
        raise InputError("is a DSA key, which is broken and which sshd refuses; make one with ssh-keygen -t ed25519")
    if kind not in _KINDS:
        raise InputError(f"begins with {kind[:40]!r}, which is no key type; {_REMEDY} (key options are not accepted)")
    if not encoded:
        raise InputError(f"stops after {kind}; {_REMEDY}")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise InputError(f"has a second word that is not base64; {_REMEDY}") from error
    _check_blob(kind, blob)
    return SshKey(kind=kind, blob=blob, comment=comment.strip()[:_COMMENT_LIMIT])


def _check_blob(kind: str, blob: bytes) -> None:
    fields = _strings(blob)
    embedded = fields[0].decode("ascii", errors="replace") if fields else ""
    if fields and embedded != kind:
        raise InputError(f"says {kind} but holds a key of type {embedded[:40]!r}; {_REMEDY}")
    if kind == "ssh-rsa" and len(fields) == 3:  # noqa: PLR2004 - type, exponent, modulus
        _check_rsa(fields[1], fields[2])
        return
    if not _is_whole(kind, fields):
        raise InputError(f"is cut short or altered; {_REMEDY}")


def _is_whole(kind: str, fields: list[bytes]) -> bool:
    if kind.startswith("sk-"):
        # A security key adds the application it was made for.
        return len(fields) > 1 and bool(fields[-1]) and _is_whole(kind[3:].partition("@")[0], fields[:-1])
    if kind == "ssh-ed25519":
        return [len(item) for item in fields[1:]] == [_ED25519_BYTES]
    if kind.startswith("ecdsa-"):
        curve = kind.rpartition("-")[2]
        return (
            len(fields) == 3  # noqa: PLR2004 - type, curve, point
            and fields[1] == curve.encode()
            and len(fields[2]) == _POINT_BYTES[curve]
            and fields[2][0] == _UNCOMPRESSED
        )
    return False


def _check_rsa(exponent: bytes, modulus: bytes) -> None:
    e, n = int.from_bytes(exponent, "big", signed=True), int.from_bytes(modulus, "big", signed=True)
    if n <= 0 or e < 3 or not e % 2 or not n % 2:  # noqa: PLR2004 - the smallest exponent RSA can have
        raise InputError(f"is not an RSA key; {_REMEDY}")
    if not RSA_MINIMUM_BITS <= n.bit_length() <= _RSA_MAXIMUM_BITS:
        raise InputError(
            f"is an RSA key of {n.bit_length()} bits; at least {RSA_MINIMUM_BITS} and at most {_RSA_MAXIMUM_BITS} are "
            "accepted: make one with ssh-keygen -t ed25519"
        )


def _strings(blob: bytes) -> list[bytes]:
    """Split a blob into its length-prefixed fields (RFC 4251 section 5); empty when it does not add up."""
    fields = []
    position = 0
    while position < len(blob):
        length = int.from_bytes(blob[position : position + 4], "big")
        position += 4
        if position + length > len(blob):
            return []
        fields.append(blob[position : position + length])
        position += length
    return fields
