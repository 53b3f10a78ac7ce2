"""The structural estimate against full synthesis, and the machinery of the figures."""

import dataclasses
import json
import time
from types import SimpleNamespace

import pytest

from celosia.hw.design_point import HW_VERSION, DesignPoint
from celosia.intrinsics import CelosiaError, ParameterError, ToolFailedError, ToolNotFoundError
from celosia.intrinsics.tomlfile import read_toml
from celosia.sim import area, area_elements
from celosia.sim.area import AreaEstimate, estimate_area, synthesize_area
from celosia.sim.area_elements import Element, Figure, figure_of

TOLERANCE = 0.025
"""Between estimate and synthesis; whole arrays of 8 bits stay within 1 %."""

NARROW = {"a": "int4", "b": "int4"}
SAMPLE = [
    DesignPoint.create("systolic", rows=2, cols=2, **NARROW),
    DesignPoint.create("systolic", rows=1, cols=4, **NARROW),
    DesignPoint.create("systolic", rows=2, cols=2, dataflow="weight-stationary", **NARROW),
    DesignPoint.create("systolic", rows=1, cols=4, dataflow="weight-stationary", **NARROW),
    DesignPoint.create("outer-product", rows=2, cols=2, **NARROW),
    DesignPoint.create("dot-product", lanes=2, depth=3, resident=True, **NARROW),
]
WIDE = [
    DesignPoint.create("systolic", rows=8, cols=8),
    DesignPoint.create("systolic", rows=8, cols=8, dataflow="weight-stationary"),
    DesignPoint.create("systolic", rows=3, cols=5),
    DesignPoint.create("systolic", rows=3, cols=5, dataflow="weight-stationary", a="uint8"),
    DesignPoint.create("systolic", rows=4, cols=4, acc="int20", overflow="saturate"),
    DesignPoint.create("systolic", rows=2, cols=3, a="int16", b="int16"),
    DesignPoint.create("systolic", rows=4, cols=4, acc="int16", overflow="saturate", dataflow="weight-stationary"),
    DesignPoint.create("outer-product", rows=4, cols=4),
    DesignPoint.create("dot-product", lanes=4, depth=8),
    DesignPoint.create("dot-product", lanes=2, depth=11, pipeline=4, a="uint8"),
]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path / "cache é"))
    monkeypatch.setattr(area_elements, "FIGURES", {})
    return tmp_path / "cache é"


def close(point, estimate, *, tolerance=TOLERANCE) -> bool:
    truth = synthesize_area(point)
    assert truth.source == "synthesis"
    registers = abs(estimate.flip_flops - truth.flip_flops) <= max(2, 0.01 * truth.flip_flops)
    return registers and abs(estimate.transistors - truth.transistors) <= tolerance * truth.transistors


@pytest.mark.parametrize("point", SAMPLE, ids=lambda point: point.name)
def test_estimate_is_close_to_synthesis(point):
    assert close(point, estimate_area(point))


@pytest.mark.slow
@pytest.mark.parametrize("point", WIDE, ids=lambda point: point.name)
def test_estimate_is_close_to_synthesis_of_wide_designs(point):
    assert close(point, estimate_area(point))


def test_the_check_catches_a_wrong_structure():
    """Elements times rows x cols, which forgets that partial sums are narrower than the accumulator, is far off."""
    point = DesignPoint.create("systolic", rows=2, cols=2, dataflow="weight-stationary", **NARROW)
    mac = figure_of(Element("mac", ("s4", "s4", "s32", "wrap")))
    honest = estimate_area(point)
    parts = honest.breakdown_transistors
    naive = dataclasses.replace(honest, transistors=honest.transistors - parts["partial sums"] + 4 * mac.transistors)
    assert close(point, honest)
    assert not close(point, naive)
    assert not close(point, dataclasses.replace(honest, flip_flops=honest.flip_flops + 4 * 24))


@pytest.mark.parametrize("point", SAMPLE + WIDE[:4], ids=lambda point: point.name)
def test_record(point):
    estimate = estimate_area(point)
    assert estimate.source == "estimate"
    assert estimate.design_hash == point.hash
    assert sum(estimate.breakdown_transistors.values()) == estimate.transistors
    assert all(part >= 0 for part in estimate.breakdown_transistors.values())
    assert 16 * estimate.flip_flops < estimate.transistors
    assert AreaEstimate(**json.loads(json.dumps(estimate.to_dict()))) == estimate


def test_area_grows_with_every_extent():
    def transistors(**parameters):
        return estimate_area(DesignPoint.create(**parameters)).transistors

    for flow in ("output-stationary", "weight-stationary"):
        sizes = [
            transistors(family="systolic", rows=rows, cols=cols, dataflow=flow)
            for rows, cols in ((1, 1), (1, 2), (2, 2), (2, 16), (16, 16))
        ]
        assert sizes == sorted(set(sizes))
    depths = [transistors(family="dot-product", lanes=2, depth=depth) for depth in (1, 2, 3, 5, 8, 16, 17, 64, 256)]
    assert depths == sorted(set(depths))


def test_every_pipeline_and_depth_has_an_estimate_from_the_table(monkeypatch):
    monkeypatch.setattr(area_elements, "_measured", lambda element: pytest.fail(f"{element.key} is not shipped"))
    monkeypatch.setattr(area_elements, "FIGURES", {})
    area._interpolated.cache_clear()
    for rows in (1, 2, 3, 7, 16):
        for flow in ("output-stationary", "weight-stationary"):
            assert estimate_area(DesignPoint.create("systolic", rows=rows, cols=5, dataflow=flow)).transistors > 0
        assert estimate_area(DesignPoint.create("outer-product", rows=rows, cols=3)).transistors > 0
    for depth in (1, 2, 3, 4, 7, 8, 16, 40):
        for resident in (False, True):
            point = DesignPoint.create("dot-product", lanes=2, depth=depth, resident=resident)
            assert estimate_area(point).transistors > 0


def test_fast_enough_for_a_search():
    points = [
        DesignPoint.create("systolic", rows=rows, cols=cols, dataflow=flow)
        for rows in range(1, 17)
        for cols in range(1, 17)
        for flow in ("output-stationary", "weight-stationary")
    ]
    for point in points:
        estimate_area(point)
    start = time.process_time()
    for _ in range(4):
        for point in points:
            estimate_area(point)
    rate = 4 * len(points) / (time.process_time() - start)
    assert rate > 20_000


# ---- figures


def test_the_shipped_table_is_of_this_hardware():
    table = read_toml(area_elements.TABLE_PATH)
    assert table["hw_version"] == HW_VERSION
    assert table["yosys"].startswith("pyosys ")
    assert len(table["elements"]) > 100


@pytest.mark.parametrize(
    "element",
    [
        Element("delay"),
        Element("select"),
        Element("mac", ("s4", "s4", "s32", "wrap")),
        Element("partial", ("s4", "s4", "s9", "s10", "wrap")),
    ],
    ids=lambda element: element.key,
)
def test_the_shipped_table_is_what_yosys_says(element, own_cache):
    from celosia.sim.area_rtl import rtlil_of

    shipped = area_elements.shipped()[element.key]
    measured = area_elements.cached_figure(rtlil_of(element))
    assert measured.flip_flops == shipped.flip_flops
    assert measured.transistors == pytest.approx(shipped.transistors, rel=0.03)  # another release of Yosys maps a little otherwise


def test_one_flip_flop_is_counted():
    figure = figure_of(Element("delay"))
    assert figure.flip_flops == area_elements.PARALLEL_BITS
    assert 16 * figure.flip_flops < figure.transistors < 40 * figure.flip_flops


def test_an_element_that_is_not_shipped_is_measured_once(own_cache, monkeypatch, capfd):
    element = Element("multiply", ("s3", "u2"))
    assert element.key not in area_elements.shipped()
    first = figure_of(element)
    assert first.transistors > 0
    assert capfd.readouterr().out == ""
    monkeypatch.setattr(area_elements, "FIGURES", {})
    monkeypatch.setattr(area_elements, "synthesize_rtlil", lambda text: pytest.fail("measured again"))
    assert figure_of(element) == first
    assert [path.name for path in own_cache.glob("area/*/*")] == ["figure.json"]


def test_a_broken_entry_is_measured_again(own_cache, monkeypatch):
    monkeypatch.setattr(area_elements, "synthesize_rtlil", lambda text: Figure(7, 1))
    assert area_elements.cached_figure("text") == Figure(7, 1)
    (entry,) = own_cache.glob("area/*/figure.json")
    entry.write_text('{"transistors": ')
    assert area_elements.cached_figure("text") == Figure(7, 1)
    assert json.loads(entry.read_text()) == {"transistors": 7, "flip_flops": 1}


def test_a_failing_yosys_leaves_nothing(own_cache):
    with pytest.raises(ToolFailedError, match=r"^Yosys failed \(exit status \d+\); its last lines: .*ERROR"):
        area_elements.cached_figure("this is no RTLIL\n")
    assert not list(own_cache.glob("area/*"))


def test_a_missing_yosys(monkeypatch):
    monkeypatch.setattr(area_elements, "version_of", lambda package: "")
    with pytest.raises(ToolNotFoundError, match=r'^Yosys: no Python package pyosys in .*; pip install "pyosys>=0.60"$') as caught:
        area_elements.synthesize_rtlil("")
    assert caught.value.exit_code == 3


def test_cells_that_yosys_does_not_count_are_refused():
    statistics = {"num_cells_by_type": {"$_NAND_": 1, "$_SDFF_PP0_": 1}, "estimated_num_transistors": "4+"}
    with pytest.raises(ToolFailedError, match=r"^Yosys left cells whose transistors it does not count: \$_SDFF_PP0_$"):
        area_elements._figure(statistics)


def test_an_unwritable_cache(monkeypatch):
    monkeypatch.setenv("CELOSIA_CACHE", "/proc/celosia")
    with pytest.raises(CelosiaError, match=r"cache folder /proc/celosia cannot be written"):
        area_elements.cached_figure("text")


def test_a_family_without_structure():
    other = SimpleNamespace(family="other")
    with pytest.raises(ParameterError, match=r"^there is no area estimate for family 'other'; synthesize_area measures any design$"):
        area._structure(other)
