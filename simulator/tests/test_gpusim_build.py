"""The library and the command as built and installed."""

from __future__ import annotations

import os
import subprocess

import pytest
from conftest import SIMULATOR, NvmlError
from gpusim import catalogue

UNINITIALIZED, NOT_SUPPORTED = 1, 3


def exported(build):
    """Names and addresses of the exported functions."""
    command = ["nm", "--dynamic", "--defined-only", str(build / "libnvidia-ml.so.1")]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: address for address, _, name in map(str.split, lines)}


def test_exactly_the_listed_names_are_exported(build):
    assert sorted(exported(build)) == sorted(catalogue.symbols())
    assert len(exported(build)) > 400


def test_names_listed_as_the_same_function_are_the_same(build):
    found = exported(build)
    same = {name: target for name, target in catalogue.symbols().items() if name != target}
    addresses = list(found.values())
    assert {name for name, address in found.items() if addresses.count(address) > 1} == {*same, *same.values()}
    assert [found[name] for name in same] == [found[target] for target in same.values()]


def test_soname(build):
    command = ["readelf", "--dynamic", str(build / "libnvidia-ml.so.1")]
    assert "soname: [libnvidia-ml.so.1]" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_every_stub_answers_that_it_is_not_supported(machine, build):
    lines = (build / "stubs.c").read_text().splitlines()
    stubs = [line.split()[2].partition("(")[0] for line in lines if line.startswith("NVML_API")]
    nvml = machine.nvml()
    assert len(stubs) > 250
    assert {nvml.call_bare(name) for name in stubs} == {NOT_SUPPORTED}


def test_nothing_works_before_initialisation(machine):
    nvml = machine.nvml()
    nvml.nvmlInit()
    for _ in range(2):
        assert nvml.nvmlDeviceGetCount() == 4
        nvml.nvmlShutdown()
    for call in (nvml.nvmlDeviceGetCount, nvml.nvmlShutdown):
        with pytest.raises(NvmlError) as failure:
            call()
        assert failure.value.number == UNINITIALIZED


@pytest.mark.parametrize("address", [0, 1, 0x50000000, 0x5F000000, 0x51FF0000, 0x53000000, 2**64 - 1])
def test_a_handle_that_is_none_is_refused(machine, address):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(NvmlError) as failure:
        nvml.nvmlDeviceGetName(card._replace(address=address))
    assert failure.value.number == 2


def test_error_texts(machine):
    nvml = machine.nvml()
    assert [nvml.nvmlErrorString(number) for number in (0, 15, 18, 999, 12345)] == [
        "Success",
        "GPU is lost",
        "Driver/library version mismatch",
        "Unknown Error",
        "Unknown Error",
    ]


def test_install_and_uninstall(build, tmp_path):
    make = ["make", "-C", str(SIMULATOR), f"BUILD={build}", f"DESTDIR={tmp_path}", "PREFIX=/usr"]
    if os.environ.get("GPUSIM_SANITIZE"):
        pytest.skip("the sanitized library is not for installing")
    subprocess.run([*make, "install"], check=True, capture_output=True)
    triplet = subprocess.run(["gcc", "-print-multiarch"], check=True, capture_output=True, text=True).stdout.strip()
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert found == {
        f"usr/lib/{triplet}/libnvidia-ml.so.1",
        "usr/bin/gpusim",
        "etc/systemd/system/gpusim-boot.service",
        "etc/systemd/system/sysinit.target.wants/gpusim-boot.service",
    }
    assert "ExecStart=/usr/bin/gpusim boot" in (tmp_path / "etc/systemd/system/gpusim-boot.service").read_text()
    environment = {**os.environ, "GPUSIM_STATE": str(tmp_path / "state")}
    for arguments in (["init", "--cards", "a30:2"], ["status"]):
        result = subprocess.run(
            [tmp_path / "usr/bin/gpusim", *arguments], env=environment, check=True, capture_output=True, text=True
        )
    assert result.stdout.count("NVIDIA A30") == 2
    subprocess.run([*make, "uninstall"], check=True, capture_output=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "state"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["init", "--cards", "a1000:4"], 'there is no card model "a1000"; known are a100-sxm4-40gb, '),
        (["init", "--cards", "a30:0"], '"a30:0" in --cards is not name:count'),
        (["init", "--cards", "a30:x"], '"a30:x" in --cards is not name:count'),
        (["init", "--cards", "a30:33"], "more than 32 cards"),
        (["init", "--cards", "a30:99999999999999"], "more than 32 cards"),
        (["init", "--cards", "a30:2", "--minors", "0,0"], "--minors must name 2 different numbers"),
        (["init", "--cards", "a30:2", "--minors", "0,32"], "different numbers below 32"),
        (["init", "--cards", "a30:2", "--cuda", "twelve"], '--cuda is "twelve"'),
        (["run", "--gpu", "9", "--", "true"], "there is no card 9; this machine has cards 0 to 3"),
        (["run", "--gpu", "x", "--", "true"], '"x" is not a card index'),
        (["run", "--gpu", "0"], "no command given"),
        (["busy", "--pid", "1", "--sm", "3"], "no registered process has PID 1"),
        (["set", "--gpu", "0", "--link-down", "12"], "card 0 has no NVLink 12"),
        (["fail", "--lost"], "--lost needs the card: --gpu N"),
        (["fail", "--call", "nvmlDeviceGetMemory"], '"nvmlDeviceGetMemory" is not an NVML call'),
        (["fail", "--call", "nvmlDeviceGetName", "--gpu", "4"], "there is no card 4"),
        (["fail", "--mismatch", "550.163.01"], "the loaded kernel module is of version 550.163.01 too"),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(machine, arguments, sentence):
    before = (machine.state / "state").read_text()
    result = machine.try_gpusim(*arguments)
    assert result.status == 1
    assert result.err.startswith("gpusim: ")
    assert sentence in result.err
    assert result.err.count("\n") == 1
    assert (machine.state / "state").read_text() == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["destroy"],
        ["init"],
        ["init", "--cards", "a30", "--driver", "latest"],
        ["init", "--cards", "a30", "--driver", "5" * 40 + ".1"],
        ["init", "--cards", "a30", "--seed", "s" * 61],
        ["init", "--cards", "a30:2", "--minors", "0,x"],
        ["run", "--gpu", "0", "--mem", "20 G", "--", "true"],
        ["run", "--gpu", "0", "--sm", "101", "--", "true"],
        ["busy", "--sm", "3"],
        ["busy", "--gpu", "0", "--mem", "9999999999G"],
        ["set", "--gpu", "0", "--temperature", "-1"],
        ["set", "--gpu", "0", "--ecc-corrected", "4294967296"],
        ["set", "--gpu", "0", "--persistence", "maybe"],
        ["fail"],
        ["fail", "--mismatch", "none"],
        ["fail", "--call", "nvmlDeviceGetName", "--error", "weird"],
    ],
)
def test_what_cannot_be_understood_is_a_usage_error(machine, arguments):
    before = (machine.state / "state").read_text()
    result = machine.try_gpusim(*arguments)
    assert result.status == 2
    assert result.err.startswith("usage: gpusim")
    assert (machine.state / "state").read_text() == before


def test_no_machine_yet(bare_machine):
    for command in (["status"], ["reboot"], ["run", "--", "true"]):
        result = bare_machine.try_gpusim(*command)
        assert result.status == 1
        assert "make one: gpusim init --cards a100-sxm4-80gb:4" in result.err
