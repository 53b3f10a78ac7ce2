import itertools
import re

import numpy as np
import pytest

from celosia.hw import DesignPoint
from celosia.intrinsics import ParameterError


def make(**parameters):
    return DesignPoint.create("accelerator", **parameters)


@pytest.mark.parametrize("name", ["spad_kib", "acc_kib"])
def test_a_memory_that_is_too_small_or_large_names_the_nearest_legal_sizes(name):
    rng, refused = np.random.default_rng(0), 0
    for core, port in itertools.product(("output-stationary", "weight-stationary", "dot-product"), (1, 4, 64)):
        for _ in range(12):
            given = {"core": core, "rows": int(rng.integers(1, 257)), "cols": int(rng.integers(1, 257)), "port_bytes": port}
            given |= {"lanes": int(rng.integers(1, 9)) if core == "dot-product" else 1, "a": str(rng.choice(["int8", "int16"]))}
            given |= {"spad_kib": 256, "acc_kib": 256, name: int(rng.choice([1, 4096]))}
            try:
                make(**given)
            except ParameterError as error:
                found = re.search(rf"so {name} from (\d+) to (\d+); nearest legal value: (\d+)$", str(error))
            else:
                continue
            if found is None:  # another parameter is wrong
                continue
            refused += 1
            low, high, nearest = (int(number) for number in found.groups())
            assert nearest == (low if given[name] < low else high)
            for size in (low, high):
                make(**{**given, name: size})
            for size in (low - 1, high + 1):
                with pytest.raises(ParameterError, match=name):
                    make(**{**given, name: size})
    assert refused > 10
