"""Components that apt lacks, in a file of our own."""

from __future__ import annotations

import pytest
from gpulab.errors import GpulabError, InputError
from gpulab.rules.apt_sources import Archive, lacking
from gpulab.services.apt_sources import complete

OWN = "/etc/apt/sources.list.d/gpulab-nvidia.sources"
MAIN = Archive("Debian", "http://deb.debian.org/debian/", "trixie", "main", "", "/etc/apt/sources.list")
WANTED = ["contrib", "non-free"]
LISTING = """\
MetaKey: main/binary-amd64/Packages
Origin: Debian
Repo-URI: http://deb.debian.org/debian/
Release: trixie
Component: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
Sourcesentry: /etc/apt/sources.list.d/debian.sources:1

MetaKey: contrib/binary-amd64/Packages
Origin: Debian
Repo-URI: http://deb.debian.org/debian/
Release: trixie
Component: contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
Sourcesentry: /etc/apt/sources.list.d/debian.sources:1

MetaKey: Packages
Repo-URI: file:/srv/
Release: ./
Sourcesentry: /etc/apt/sources.list.d/local.list:1
"""
ADDED = """\
Types: deb
URIs: http://deb.debian.org/debian/
Suites: trixie
Components: non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def archive(**fields):
    return Archive(**{**vars(MAIN), **fields})


def text(*archives):
    return lacking(archives, origin="Debian", components=WANTED, own_file=OWN)


def test_nothing_is_added_where_nothing_is_lacking():
    assert text(MAIN, archive(component="contrib"), archive(component="non-free")) == ""


def test_each_suite_gets_what_it_lacks():
    content = text(MAIN, archive(component="contrib"), archive(suite="trixie-updates"))
    assert content.startswith("# Written by gpulab")
    assert content.endswith(
        "\nTypes: deb\nURIs: http://deb.debian.org/debian/\nSuites: trixie\nComponents: non-free\n"
        "\nTypes: deb\nURIs: http://deb.debian.org/debian/\nSuites: trixie-updates\nComponents: contrib non-free\n"
    )


def test_our_own_file_and_other_publishers_do_not_count():
    before = text(MAIN)
    ours = [archive(component=name, file=OWN) for name in WANTED]
    others = archive(origin="Docker", uri="http://example.org", component="stable")
    assert text(MAIN, *ours, others) == before
    assert "example.org" not in before


def test_the_keyring_is_named_as_the_admin_names_it():
    assert "\nSigned-By: /usr/share/keyrings/x.gpg\n" in text(archive(signed_by="/usr/share/keyrings/x.gpg"))


def test_a_key_inside_the_entry_is_left_to_the_admin():
    with pytest.raises(InputError, match=r"trixie\) lacks contrib non-free .* add them to its Components"):
        text(archive(signed_by="-----BEGIN PGP PUBLIC KEY BLOCK-----"))


def test_an_unknown_publisher_is_refused():
    with pytest.raises(InputError, match="apt knows no archive of Debian; run apt-get update"):
        text(archive(origin="Ubuntu"))


def test_the_file_is_written_kept_and_removed(tmp_path):
    place = tmp_path / OWN.removeprefix("/")
    place.parent.mkdir(parents=True)
    listing = {"text": LISTING}

    def step(*, dry_run=False):
        return complete(
            place.__class__(OWN), origin="Debian", components=WANTED, dry_run=dry_run, root=tmp_path,
            run=lambda *_: listing["text"],
        )  # fmt: skip

    planned = step(dry_run=True)
    assert planned.changed
    assert not place.exists()
    assert step().after == planned.after
    assert place.read_text().endswith("\n\n" + ADDED)
    # apt then lists our own entry too.
    listing["text"] += "\n" + LISTING.split("\n\n", maxsplit=1)[0].replace("main", "non-free").replace(
        "/etc/apt/sources.list.d/debian.sources", OWN
    )
    assert not step().changed
    listing["text"] += "\n\n" + LISTING.split("\n\n", maxsplit=1)[0].replace("main", "non-free")
    assert step().changed
    assert not place.exists()


def test_apt_that_fails_is_told(tmp_path):
    def broken(*_):
        raise OSError("the program apt-get is not installed")

    with pytest.raises(GpulabError, match="apt-get cannot say which archives it knows: the program apt-get is not"):
        complete(tmp_path, origin="Debian", components=WANTED, dry_run=False, run=broken)
