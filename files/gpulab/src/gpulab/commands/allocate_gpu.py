"""`allocate_gpu`: run a command on a card of its own.

This process asks the broker for a card, is moved by it into a cgroup that may open exactly that card, and then becomes
the command: same PID, terminal, standard input, signals and exit status. It starts with every job, so it imports next
to nothing: the modules `signal` and `socket` alone take as long as Python itself, `os` a quarter of it, and all that is
used of them here is in the modules of C beneath them (see bench/README.md). What it sends is checked by the broker
(rules/lease_wire.py).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import _socket
import posix
import sys
import time

SOCKET = "/run/gpulab/broker.sock"
USAGE = """\
usage: allocate_gpu [OPTIONS] [--] COMMAND [ARGUMENT...]

Run a command on a GPU card that nobody else has until it ends.

  --gpus N         so many cards (1)
  --mem 20G        at least so much GPU memory on each
  --share          others may be on the same card; --mem of it is yours
  --wait [TIME]    stand in line until there is a card, at most TIME: 30m, 2h, 90s
  --hours H        how long it is meant to run, for the rules about times of day
  --dry-run        say which card it would be, and why; start nothing
  --help

examples:
  allocate_gpu -- python train.py
  allocate_gpu --gpus 2 --wait 2h -- torchrun --nproc-per-node 2 train.py
  allocate_gpu --share --mem 20G -- python notebook.py

Exit status: the command's own; 75 no card is free, 125 refused or failed, 126 the command cannot be run, 127 there is
no such command. `gpu-status` shows who has what.
"""
BUSY, FAILED, CANNOT_RUN, NOT_FOUND = 75, 125, 126, 127
_LARGEST = 1 << 18
_LONGEST = 1000
_COMMAND = 200  # letters of the command line that gpu-status may show
_PATH = b"/bin:/usr/bin"  # where execvp(3) looks when there is no PATH
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FLAGS = {"--share": "share", "--dry-run": "plan"}
_VALUES = {"--gpus": "cards", "--mem": "mem", "--hours": "hours"}
_LONGEST_PAUSE = 2.0  # seconds between two attempts to reach the broker again
_TRIES = 20  # such attempts without an answer in between
_GIVE_UP = 30.0  # seconds without any broker


class Stop(Exception):  # noqa: N818 - it ends the program, whatever the reason
    """Nothing was started; the arguments are the line to print and the exit status."""


def parse(argv: list[str]) -> tuple[dict[str, str], float | None, list[str]]:
    """Read the command line.

    Returns:
        What to ask for, how long to wait at most in seconds (None for as long as it takes), and the command.

    Raises:
        Stop: it is not understood, or help was asked for.
    """
    wishes: dict[str, str] = {}
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option == "--" and not equals:
            break
        if option in {"-h", "--help"}:
            raise Stop(USAGE, 0)
        if option in _FLAGS and not equals:
            wishes[_FLAGS[option]] = "1"
        elif option == "--wait":
            wishes["wait"] = "1"
            if equals or (rest and seconds(rest[0]) is not None):
                wishes["time"] = value if equals else rest.pop(0)
        elif option in _VALUES and (equals or rest):
            wishes[_VALUES[option]] = value if equals else rest.pop(0)
        elif option in _VALUES:
            raise Stop(f"{option} needs a value; `allocate_gpu --help` shows how", FAILED)
        else:
            raise Stop(f"there is no option {option}; `allocate_gpu --help` lists them", FAILED)
    if not rest and "plan" not in wishes:
        raise Stop("say what to run, such as: allocate_gpu -- python train.py (`allocate_gpu --help`)", FAILED)
    return wishes, _patience(wishes), rest


def _patience(wishes: dict[str, str]) -> float | None:
    text = wishes.pop("time", None)
    patience = None if text is None else seconds(text)
    if text is not None and patience is None:
        raise Stop(f"--wait={text} is not a time; give a number and a unit: 90s, 30m, 2h, 1d", FAILED)
    return patience


def seconds(text: str) -> float | None:
    """Read a time such as 30m; None when it is not one."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isascii() or not number.replace(".", "", 1).isdigit():
        return None
    return float(number) * _UNITS[unit]


def connect(path: str, deadline: float) -> _socket.socket:
    """Reach the broker; systemd holds its socket open while it restarts.

    Raises:
        Stop: there is none.
    """
    while True:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if time.monotonic() >= deadline:
                raise Stop(
                    f"the broker cannot be reached ({path}: {error.strerror}); the admin can look at "
                    "`systemctl status gpulab-broker.socket`",
                    FAILED,
                ) from None
            time.sleep(0.2)
        else:
            return connection


def ask(verb: str, wishes: dict[str, str], patience: float | None, path: str = SOCKET) -> dict[str, str]:
    """Ask the broker, and wait for the answer.

    Args:
        verb: what is asked.
        wishes: its values.
        patience: seconds to stand in line; None for as long as it takes.
        path: the broker's socket.

    Returns:
        The values of the answer, its verb among them.

    Raises:
        Stop: it was refused.
        TimeoutError: the time is over.
    """
    began = time.monotonic()
    values = {key: value for key, value in wishes.items() if key != "plan"}
    if sum(map(len, values.values())) > _LONGEST:
        raise Stop("the options are too long; `allocate_gpu --help` shows how they look", FAILED)
    connection = connect(path, began)
    pause, tries = 0.05, 0
    while tries < _TRIES:
        try:
            send(connection, [verb, *(f"{key}={value}" for key, value in values.items())])
            while (answer := receive(connection, began, patience)) is not None:
                if answer["verb"] == "refused":
                    raise Stop(answer["say"], int(answer["status"]))
                if answer["verb"] != "wait":
                    return answer
                pause, tries = 0.05, 0
                tell(f"waiting, number {answer['position']} of {answer['of']} in line: {answer['why']}")
        except ConnectionError:  # the broker went away in the middle of the request
            pass
        connection.close()
        values["again"] = "1"
        time.sleep(pause)
        pause, tries = min(2 * pause, _LONGEST_PAUSE), tries + 1
        connection = connect(path, time.monotonic() + _GIVE_UP)
    connection.close()
    raise Stop("the broker ends before it answers; the admin can look at `journalctl -u gpulab-broker`", FAILED)


def send(connection: _socket.socket, lines: list[str]) -> None:
    """Send the request, one line a value."""
    try:  # noqa: SIM105 - importing contextlib takes too long here
        connection.send(_bytes("\n".join(line.replace("\n", " ") for line in lines)))
    except ConnectionError:
        pass  # turned away at the door, perhaps: what was said is there to be read; and if not, reading tells


def receive(connection: _socket.socket, began: float, patience: float | None) -> dict[str, str] | None:
    """Wait for a message.

    Returns:
        Its values and its verb; None when the broker has gone.

    Raises:
        TimeoutError: the time is over.
    """
    left = None if patience is None else began + patience - time.monotonic()
    if left is not None and left <= 0:
        raise TimeoutError
    connection.settimeout(left)
    try:
        data = connection.recv(_LARGEST)
    except ConnectionResetError:  # told once, and before what the broker said at the end (unix(7), Linux 6.1)
        data = connection.recv(_LARGEST)
    if not data:
        return None
    verb, *lines = data.decode("utf-8", "replace").split("\n")
    return {"verb": verb, **dict(line.split("=", 1) for line in lines)}


def tell(line: str) -> None:
    """Print a line for the person at the terminal; the command's own output is not ours to touch."""
    print(f"allocate_gpu: {line}", file=sys.stderr, flush=True)


def environment(answer: dict[str, str]) -> dict[bytes, bytes]:
    """Return the environment for the command: as it came, with the cards."""
    environ = dict(posix.environ)
    try:
        with open("/proc/self/environ", "rb") as stream:
            before = stream.read()
    except OSError:
        before = b"LC_CTYPE="
    if not before.startswith(b"LC_CTYPE=") and b"\0LC_CTYPE=" not in before:
        environ.pop(b"LC_CTYPE", None)  # Python itself sets it in the C locale (PEP 538)
    environ[b"CUDA_VISIBLE_DEVICES"] = answer["visible"].encode()
    environ[b"GPULAB_LEASE"] = answer["id"].encode()
    return environ


def become(command: list[str], environ: dict[bytes, bytes]) -> None:
    """Become the command. Returns only by raising.

    Raises:
        Stop: it cannot be run.
    """
    # Python ignores these two for itself; the command is to have them as usual.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    problem: OSError | None = None
    for path in _places(command[0], environ):
        try:
            posix.execve(path, command, environ)
        except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203 - a folder of PATH has it or not
            pass
        except OSError as error:
            problem = problem or error
    if problem is None:
        raise Stop(f"{command[0]}: there is no such command", NOT_FOUND)
    raise Stop(f"{command[0]} cannot be run: {problem.strerror}", CANNOT_RUN)


def _places(name: str, environ: dict[bytes, bytes]) -> list[bytes]:
    """Return where a command may be, as execvp(3) looks for it."""
    if "/" in name:
        return [_bytes(name)]
    return [(folder or b".") + b"/" + _bytes(name) for folder in environ.get(b"PATH", _PATH).split(b":")]


def _bytes(text: str) -> bytes:
    """Return what the kernel calls it; what came from the command line comes back as it was (PEP 383)."""
    return text.encode(sys.getfilesystemencoding(), "surrogateescape")


def main(argv: list[str], path: str = SOCKET) -> int:
    """Get a card and become the command; returns only when nothing was started."""
    try:
        wishes, patience, command = parse(argv)
        wishes["command"] = " ".join(command)[:_COMMAND]
        if "plan" in wishes:
            answer = ask("plan", wishes, None, path)
            print(answer["say"], *filter(None, [answer["hint"]]), sep="\n")
            return 0
        answer = ask("lease", wishes, patience, path)
        if answer["hint"]:
            tell(answer["hint"])
        if sys.stderr is not None and sys.stderr.isatty():
            tell(f"{answer['names']} (lease {answer['id']})")
        become(command, environment(answer))
    except TimeoutError:
        tell("no card came free in time; nothing was started")
        return BUSY
    except Stop as stop:
        line, status = stop.args
        if status == 0:
            print(line, end="")
        else:
            tell(line)
        return int(status)
    return FAILED


def run() -> None:
    """Entry point of the installed command."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        # Ctrl-C ends us at once, as it would the command; closing the connection leaves the line.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
