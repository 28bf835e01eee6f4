from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.server import judge, parse_server

DEBIAN = {
    "distribution": "Debian",
    "distribution_version": "13.1",
    "distribution_major_version": "13",
    "service_mgr": "systemd",
    "effective_user_id": 0,
    "python": {"version": {"major": 3, "minor": 13}},
}


def test_a_tested_system_gives_no_warning():
    assert judge(parse_server(DEBIAN)) == ()


def test_an_untested_system_is_said():
    facts = {**DEBIAN, "distribution": "Ubuntu", "distribution_version": "24.04", "distribution_major_version": "24"}
    assert "Ubuntu 24.04 should work but is not tested" in judge(parse_server(facts))[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effective_user_id": 1000}, "connected with user id 1000, .* ansible_become: true"),
        ({"distribution": "Fedora", "distribution_major_version": "43"}, "the server runs Fedora 43; gpulab knows"),
        ({"distribution_major_version": "11"}, "the server runs Debian 11; gpulab knows"),
        ({"service_mgr": "sysvinit"}, "service manager is sysvinit; gpulab needs systemd"),
        ({"python": {"version": {"major": 3, "minor": 9}}}, "Python on the server is 3.9; gpulab needs 3.10"),
        ({"python": {}}, "Python on the server is 0.0"),
    ],
)
def test_a_machine_that_cannot_be_used_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        judge(parse_server({**DEBIAN, **changes}))
