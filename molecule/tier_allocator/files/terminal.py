"""Use allocate_gpu at a terminal, as a person does: terminal.py. Prints what was seen as JSON.

Run as a member. A pseudo terminal (pty(7)) with an interactive shell on it, which does job control.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

PROGRAM = r"""
import os, signal, sys
def say(text): os.write(1, ("<" + text + ">\n").encode())  # a signal may come in the middle of a print
signal.signal(signal.SIGWINCH, lambda *_: say("size %d %d" % os.get_terminal_size()))
signal.signal(signal.SIGINT, lambda *_: say("interrupted"))
signal.signal(signal.SIGCONT, lambda *_: say("continued"))
say("tty %s %s %s" % (os.isatty(0), os.isatty(1), os.isatty(2)))
say("foreground %s" % (os.tcgetpgrp(0) == os.getpgrp()))
for line in sys.stdin:
    say("typed " + line.strip())
    if line.strip() == "end":
        sys.exit(42)
"""


class Terminal:
    """A shell on a pseudo terminal."""

    def __init__(self) -> None:
        """Start bash on it."""
        self.seen = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ["PS1"] = "READY> "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])  # noqa: S606 - a shell is meant

    def type(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def expect(self, pattern: str, seconds: float = 60.0) -> str:
        """Wait until something is printed; return it, and forget all before."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end() :]
                return found[0]
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                sys.exit(f"nothing like {pattern!r} was printed, only {self.seen!r}")
            self.seen += os.read(self.master, 65536).decode(errors="replace")

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


def main() -> int:
    """Talk to the program through the terminal."""
    with open("/tmp/program.py", "w") as stream:  # noqa: S108 - a file of this test machine
        stream.write(PROGRAM)
    terminal = Terminal()
    seen = []
    terminal.expect("READY> ")
    terminal.type("allocate_gpu -- python3 /tmp/program.py\n")
    seen.append(terminal.expect("<tty [^>]*>"))
    seen.append(terminal.expect("<foreground [^>]*>"))
    terminal.type("hello\n")
    seen.append(terminal.expect("<typed [^>]*>"))
    terminal.resize(33, 111)
    seen.append(terminal.expect("<size [^>]*>"))
    terminal.type("\x03")
    seen.append(terminal.expect("<interrupted>"))
    terminal.type("\x1a")
    seen.append(terminal.expect(r"Stopped"))
    terminal.type("fg\n")
    seen.append(terminal.expect("<continued>"))
    terminal.type("end\n")
    seen.append(terminal.expect("<typed end>"))
    terminal.type("echo status=$?\n")
    seen.append(terminal.expect(r"status=\d+"))
    # Ctrl-C while standing in line ends allocate_gpu, and the shell is there again.
    terminal.type("allocate_gpu --gpus 4 -- sleep 900 & until gpu-status | grep -q 900; do :; done; echo taken\n")
    terminal.expect(r"\ntaken")
    terminal.expect("READY> ")
    terminal.type("allocate_gpu --wait -- true\n")
    seen.append(terminal.expect("number 1 of 1 in line"))
    terminal.type("\x03")
    terminal.expect("READY> ")
    terminal.type("echo status=$?; kill %1\n")
    seen.append(terminal.expect(r"status=\d+"))
    print(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
