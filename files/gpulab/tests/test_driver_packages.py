"""Which packages are the driver, in which version, and with which headers."""

from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.driver_packages import (
    Package,
    check_version,
    driver_packages,
    fits,
    headers,
    missing,
    specification,
    upstream,
)


def package(name, version="550.163.01-2", source="nvidia-graphics-drivers", *, held=False):
    return Package(name, name, version, source, held)


def test_the_driver_is_told_by_its_sources():
    driver = [
        package("libcuda1"),
        package("firmware-nvidia-gsp"),
        package("nvidia-open-kernel-dkms", source="nvidia-open-gpu-kernel-modules"),
        package("nvidia-modprobe", "570.133.07-1", "nvidia-modprobe"),
        package("nvidia-utils-580-server", "580.95.05-0ubuntu1", "nvidia-graphics-drivers-580-server"),
        package("nvidia-fabricmanager-580", "580.95.05-0ubuntu1", "fabric-manager-580"),
    ]
    others = [
        package("nvidia-cuda-toolkit", "12.4", "nvidia-cuda-toolkit"),
        package("libnvidia-container1", "1.17", "libnvidia-container"),
        package("firmware-nvidia-graphics", "20250410", "firmware-nonfree"),
        package("linux-image-generic", "6.8.0.45", "linux-meta"),
    ]
    assert driver_packages([*others, *driver]) == tuple(driver)


def test_ubuntus_prebuilt_modules_and_the_kernels_are_kept_in_step():
    prebuilt = package("linux-modules-nvidia-580-server-generic", "6.8.0-45.45", "linux-restricted-modules")
    meta = package("linux-image-generic", "6.8.0.45", "linux-meta")
    assert driver_packages([prebuilt, meta]) == (prebuilt, meta)


@pytest.mark.parametrize(
    ("version", "answer"),
    [("550.163.01-2", "550.163.01"), ("1:535.261.03-1~deb12u1", "535.261.03"), ("550.163.01", "550.163.01")],
)
def test_upstream_version(version, answer):
    assert upstream(version) == answer


@pytest.mark.parametrize("version", ["", "550.163.01", "550.163.01-2", "580.95.05-0ubuntu0.24.04.1", "550.54"])
def test_versions_that_can_be_wanted(version):
    assert check_version(version) == version


@pytest.mark.parametrize("version", ["latest", "550", "550.*", "550.163.01-2; reboot", "550.163.01 "])
def test_versions_that_cannot(version):
    with pytest.raises(
        InputError, match=r"nvidia_driver_version is .*give a whole driver version such as 550\.163\.01"
    ):
        check_version(version)


def test_a_version_without_revision_takes_any():
    assert fits(package("nvidia-smi"), "550.163.01")
    assert fits(package("nvidia-smi"), "550.163.01-2")
    assert not fits(package("nvidia-smi"), "550.163.01-3")
    assert not fits(package("nvidia-smi"), "550.163.0")
    assert specification("nvidia-smi", "550.163.01") == "nvidia-smi=550.163.01-*"
    assert specification("nvidia-smi", "550.163.01-2") == "nvidia-smi=550.163.01-2"
    assert specification("nvidia-smi", "") == "nvidia-smi"


def test_what_is_missing():
    installed = (package("libcuda1"), package("nvidia-smi", "535.261.03-1"))
    assert missing(installed, ["libcuda1", "nvidia-smi", "nvidia-kernel-dkms"], "550.163.01") == (
        "nvidia-smi",
        "nvidia-kernel-dkms",
    )
    assert missing(installed, ["libcuda1", "nvidia-smi"], "") == ()


@pytest.mark.parametrize(
    ("kernel", "installed", "answer"),
    [
        ("6.1.0-37-amd64", ["linux-image-6.1.0-37-amd64", "linux-image-amd64"], ["6.1.0-37-amd64", "amd64"]),
        (
            "6.12.43+deb13-cloud-amd64",
            ["linux-image-6.12.43+deb13-cloud-amd64", "linux-image-cloud-amd64", "linux-image-cloud-amd64-dbg"],
            ["6.12.43+deb13-cloud-amd64", "cloud-amd64"],
        ),
        ("6.12.43+deb13-rt-amd64", ["linux-image-6.12.43+deb13-rt-amd64"], ["6.12.43+deb13-rt-amd64", "rt-amd64"]),
        (
            "6.8.0-45-generic",
            ["linux-image-6.8.0-45-generic", "linux-image-generic-hwe-22.04", "linux-image-unsigned-6.8.0-40-generic"],
            ["6.8.0-45-generic", "generic-hwe-22.04"],
        ),
        ("6.18.44-custom", ["linux-image-amd64"], ["amd64"]),
        ("6.18.44-custom", [], []),
    ],
)
def test_headers_of_the_running_kernel_and_of_those_to_come(kernel, installed, answer):
    assert headers(kernel, installed) == tuple(f"linux-headers-{name}" for name in answer)
