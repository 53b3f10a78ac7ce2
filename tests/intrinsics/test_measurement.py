import json

import pytest

from celosia.intrinsics import Measurement, ParameterError


def test_round_trip_through_json():
    ledger = {"fill": 1, "steady": 6, "drain": 2, "stall": 1}
    measured = Measurement(cycles=10, macs=40, utilization=0.5, source="rtl", design_hash="ab", ledger=ledger, matches_reference=True)
    plain = json.loads(json.dumps(measured.to_dict()))
    assert plain["ledger"] == ledger
    assert Measurement(**plain) == measured


def test_ledger_must_sum():
    message = r"^ledger \{'fill': 1, 'steady': 8\} sums to 9, not to 10 cycles$"
    with pytest.raises(ParameterError, match=message):
        Measurement(cycles=10, macs=1, utilization=0.1, source="rtl", design_hash="ab", ledger={"fill": 1, "steady": 8})


def test_source_is_from_a_closed_list():
    with pytest.raises(ParameterError, match=r"^source must be one of model, rtl, estimate, synthesis, not 'guess'$"):
        Measurement(cycles=1, macs=1, utilization=1.0, source="guess", design_hash="ab")
