"""Role nvidia_driver with a driver that belongs to no package: nothing is touched, a mismatch is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Play
    from testinfra.host import Host

MACHINES = ("simulated",)
STARTS = "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"


def run(play: Play, *, fails: bool = False, **variables: object) -> str:
    """Run the role again, see whether it works, and return what it said, in one line."""
    done = play(**variables)
    assert (done.returncode != 0) is fails, done.stdout
    return done.said


@pytest.fixture(autouse=True)
def _healed(host: Host) -> Iterator[None]:
    yield
    host.run_expect([0], "gpusim fail --clear")


def test_nothing_is_touched(host: Host) -> None:
    assert host.check_output(f'python3 -c "{STARTS}"') == "0"
    assert (
        host.run("find / -xdev -newer /usr/local/src/gpusim.installed.tar -name '*gpulab*' -path '/etc/*'").stdout == ""
    )
    assert host.run("dpkg-query --show '*nvidia*' '*cuda*'").stdout == ""
    assert not host.file("/var/lib/gpulab").exists
    assert "non-free-firmware" not in host.check_output("apt-get indextargets --format '$(COMPONENT)'")


def test_it_is_left_alone_by_default_too(play: Play) -> None:
    assert "changed=0" in run(play, nvidia_driver_install="auto")


def test_packages_are_not_mixed_with_it(host: Host, play: Play) -> None:
    message = run(play, fails=True, nvidia_driver_install=True)
    assert "there is a driver that belongs to no package (550.163.01)" in message
    assert "remove it with nvidia-uninstall, or set nvidia_driver_install to false" in message
    assert host.check_output(f'python3 -c "{STARTS}"') == "0"


def test_kernel_module_and_library_of_different_versions_stop_the_run_with_the_cure(host: Host, play: Play) -> None:
    host.run_expect([0], "gpusim devnodes --proc")
    assert "changed=0" in run(play)
    host.run_expect([0], "gpusim fail --mismatch 560.35.03")
    began = host.check_output("stat --format=%Y /proc/1")
    for allowed in (False, True):  # a driver that is left alone is not rebooted into either
        message = run(play, fails=True, nvidia_driver_allow_reboot=allowed)
        assert "the NVIDIA kernel module that is loaded is 550.163.01, the library is 560.35.03" in message
        assert "reboot the server, or when nothing uses a card run `modprobe -r nvidia_uvm" in message
        assert "changed=0" in message
    assert host.check_output("stat --format=%Y /proc/1") == began
