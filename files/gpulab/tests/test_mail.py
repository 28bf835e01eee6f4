"""Mail that members cannot bend: one recipient, no header of theirs, no shell, and clear errors."""

from __future__ import annotations

import email
import subprocess
from email import policy

import pytest
from gpulab.adapters import mail
from gpulab.adapters.mail import SENDMAIL, MailError, send
from gpulab.errors import GpulabError


class Mta:
    """Stands where subprocess.run is: keeps what it was given and answers as told."""

    def __init__(self, returncode=0, stderr=b"", error=None):
        self.answer = subprocess.CompletedProcess([], returncode, b"", stderr)
        self.error = error
        self.calls = []

    def __call__(self, argv, **options):
        self.calls.append((argv, options))
        if self.error:
            raise self.error
        return self.answer

    @property
    def message(self):
        ((_, options),) = self.calls
        return email.message_from_bytes(options["input"], policy=policy.default)


def sent(tmp_path, recipient="bob", subject="s", body="b\n", **more):
    mta = Mta()
    send(recipient, subject, body, topic="check-gpu", root=tmp_path, runner=mta, **more)
    return mta


def test_a_mail_is_one_call_without_a_shell(tmp_path):
    mta = sent(tmp_path)
    ((argv, options),) = mta.calls
    assert argv == [SENDMAIL, "-i", "-f", "root", "--", "bob"]
    assert options["timeout"] == mail.TIMEOUT_SECONDS
    assert not options.get("shell")


def test_headers_say_who_what_and_that_a_program_wrote_it(tmp_path):
    message = sent(tmp_path, subject="card 0: 您的进程仍在运行", body="第一行\n.\nlast\n").message
    assert message["To"] == "bob"
    assert message["From"] == "gpulab <root>"
    assert message["Subject"] == "card 0: 您的进程仍在运行"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["List-Id"] == "gpulab check-gpu <check-gpu.gpulab.localhost>"
    assert message.get_content() == "第一行\n.\nlast\n"


def test_addresses_get_the_servers_mail_domain_when_it_has_one(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/mailname").write_text("lab.example.org\n")
    message = sent(tmp_path).message
    assert message["To"] == "bob@lab.example.org"
    assert message["From"] == "gpulab <root@lab.example.org>"
    assert "<check-gpu.gpulab.lab.example.org>" in message["List-Id"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a b\r\nBcc: x", b"-x.org", b"x" * 5000])
def test_a_strange_mailname_is_left_out(tmp_path, content):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/mailname").write_bytes(content)
    message = sent(tmp_path).message
    assert message["To"] in {"bob", "bob@a"}
    assert "Bcc" not in message


@pytest.mark.parametrize(
    "subject",
    [
        "x\nBcc: mallory@example.org",
        "x\r\n\r\nbody",
        "x\x00\x1b[2J",
        "\u2028split\u202eevil",
        "\udc80broken",
        "y" * 10_000,
    ],
)
def test_a_subject_is_one_short_printable_line(tmp_path, subject):
    message = sent(tmp_path, subject=subject).message
    assert message["Subject"].isprintable()
    assert len(message["Subject"]) <= 160
    assert message["Bcc"] is None
    assert message.get_content() == "b\n"


def test_a_body_stays_a_body(tmp_path):
    body = "\nFrom: mallory\n\x1b[2J\x00\udc80\r\n" + "z" * 2000 + "\n"
    message = sent(tmp_path, body=body).message
    assert message["From"] == "gpulab <root>"
    lines = message.get_content().split("\n")
    assert lines[1] == "From: mallory"
    assert all(line.isprintable() for line in lines)
    assert "z" * 2000 in lines


@pytest.mark.parametrize(
    "recipient",
    [
        "",
        "-bp",
        "bob alice",
        "bob\n",
        "bob@example.org",
        "|id",
        "/tmp/x",
        ":include:/etc/shadow",
        "bob,alice",
        "x" * 33,
        "béa",
    ],
)
def test_only_an_account_name_is_a_recipient(tmp_path, recipient):
    mta = Mta()
    with pytest.raises(MailError, match="account name"):
        send(recipient, "s", "b", topic="check-gpu", root=tmp_path, runner=mta)
    assert not mta.calls


@pytest.mark.parametrize(
    ("mta", "reason"),
    [
        (Mta(returncode=75, stderr=b"first\nsendmail: disk full\n\n"), "sendmail ended with 75: sendmail: disk full"),
        (Mta(returncode=1, stderr=b"\x1b[2J\xff"), r"ended with 1: \[2J"),
        (Mta(returncode=1), "it gave no reason"),
        (Mta(error=FileNotFoundError(2, "No such file or directory")), "No such file or directory"),
        (Mta(error=subprocess.TimeoutExpired("sendmail", 60)), "took over 60 s"),
    ],
)
def test_refusals_are_one_line_with_the_last_word_of_the_mta(tmp_path, mta, reason):
    with pytest.raises(MailError, match=reason) as caught:
        send("bob", "s", "b", topic="check-gpu", root=tmp_path, runner=mta)
    assert isinstance(caught.value, GpulabError)
    assert str(caught.value).startswith("mail to bob was not sent: ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["PID 7 = python\n", "您的进程仍在运行 = 4242\n"])
def test_a_mailbox_can_be_read_without_a_mail_program(tmp_path, text):
    body = text + "w" * 300 + "\n"
    ((_, options),) = sent(tmp_path, body=body).calls
    assert body.encode() in options["input"]


def test_a_real_program_gets_the_mail_on_its_input(tmp_path, monkeypatch):
    keeper = tmp_path / "sendmail"
    keeper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" > {tmp_path}/arguments\ncat > {tmp_path}/message\n')
    keeper.chmod(0o755)
    monkeypatch.setattr(mail, "SENDMAIL", str(keeper))
    send("bob", "hello", "body\n", topic="check-gpu", root=tmp_path)
    assert (tmp_path / "arguments").read_text() == "-i -f root -- bob\n"
    assert email.message_from_bytes((tmp_path / "message").read_bytes())["Subject"] == "hello"
