"""The rules of the network line: what is refused, and what the kernel's tools are given."""

from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.bandwidth import (
    IFB,
    VARIABLES,
    Shape,
    burst,
    nft_rules,
    parse_networks,
    parse_rate,
    plan,
    tc_commands,
)

LEAD = f"action mirred egress redirect dev {IFB}"


@pytest.mark.parametrize(("text", "bits"), [("500mbit", 500_000_000), ("1.5Gbit", 1_500_000_000)])
def test_a_rate_has_a_unit(text, bits):
    assert parse_rate(text, "bandwidth_rate") == bits


@pytest.mark.parametrize("text", ["500", 500, "500mbps", "-1mbit", "", "1mbit; reboot"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(InputError, match="give a number with a unit, such as 500mbit"):
        parse_rate(text, "bandwidth_rate")


@pytest.mark.parametrize("text", ["0mbit", "1kbit", "900gbit"])
def test_a_rate_that_nobody_could_work_with_is_refused(text):
    with pytest.raises(InputError, match="1mbit to 400gbit"):
        parse_rate(text, "bandwidth_rate")


def test_networks_that_overlap_become_one():
    found = parse_networks(["10.0.0.0/8", "10.1.0.0/16", "fd00::/8"], "bandwidth_exempt")
    assert [str(each) for each in found] == ["10.0.0.0/8", "fd00::/8"]


@pytest.mark.parametrize("text", ["nas", "10.0.0.5/8", "10.0.0.0/33", "0.0.0.0/0", "::/0"])
def test_what_is_no_network_is_refused(text):
    with pytest.raises(InputError, match="bandwidth_exempt has"):
        parse_networks([text], "bandwidth_exempt")


@pytest.mark.parametrize(
    ("rate", "mtu", "size"), [(500_000_000, 1500, 131_072), (10**10, 1500, 1_250_000), (10**6, 90_000, 180_000)]
)
def test_the_burst_holds_a_whole_packet_and_a_millisecond(rate, mtu, size):
    assert burst(rate, mtu) == size


def test_what_is_exempt_is_let_through_before_the_line_is_led_away():
    lines = tc_commands(Shape("eth0", 1500, 10**8, 10**8, parse_networks(["10.0.0.0/8"], "x")))
    assert [line for line in lines if "flower" in line or "matchall" in line] == [
        "filter add dev eth0 ingress protocol ip prio 1 flower src_ip 10.0.0.0/8 action pass",
        f"filter add dev eth0 ingress protocol all prio 3 matchall action connmark pipe {LEAD}",
    ]
    assert "matchall" in lines[-1]  # last: by then the other end is there


def test_each_way_has_its_own_rate():
    lines = tc_commands(Shape("eth0", 1500, up=20_000_000, down=50_000_000))
    assert [line.split(" rate ")[1].split()[0] for line in lines if " rate " in line] == ["50000000bit", "20000000bit"]


def test_a_cap_is_there_only_when_it_is_asked_for():
    assert "limit" not in nft_rules(Shape("eth0", 1500, 10**8, 10**8))
    assert "limit rate over 2500000 bytes/second" in nft_rules(Shape("eth0", 1500, 10**8, 10**8, cap=20_000_000))


def test_the_plan_says_both_rates():
    asked = {"bandwidth_enabled": True, "bandwidth_rate": "500mbit", "bandwidth_rate_up": "100mbit"}
    assert "100 Mbit/s up, 500 Mbit/s down" in plan(asked)[0]
    assert plan({"bandwidth_enabled": "false", "bandwidth_rate": "500"}) == ()
    assert set(asked) <= set(VARIABLES)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, 'bandwidth_rate is ""; give a number with a unit'),
        ({"bandwidth_rate": "1gbit", "bandwidth_rate_up": "9"}, 'bandwidth_rate_up is "9"'),
        ({"bandwidth_rate": "0mbit"}, 'bandwidth_rate is "0mbit"; give 1mbit'),
        ({"bandwidth_rate": "1gbit", "bandwidth_exempt": ["nas"]}, 'bandwidth_exempt has "nas"'),
        ({"bandwidth_rate": "1gbit", "bandwidth_exempt": "nas"}, "give a list"),
        ({"bandwidth_rate": "1gbit", "bandwidth_member_cap": "200"}, 'bandwidth_member_cap is "200"'),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_changes(given, message):
    with pytest.raises(InputError, match=message):
        plan({"bandwidth_enabled": True, **given})
