"""The picture that README shows is what `replicode demo` draws."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import image

from replicode.verbs import demo

SHOWN = Path(__file__).parents[2] / "docs" / "demo.png"


@pytest.mark.full
def test_the_picture_in_readme(tmp_path):
    if f"version{matplotlib.__version__},".encode() not in SHOWN.read_bytes():
        pytest.skip("drawn by another version of matplotlib")
    demo.run(tmp_path, lambda _: None)
    drawn, shown = image.imread(tmp_path / "figure.png"), image.imread(SHOWN)
    assert drawn.shape == shown.shape
    assert np.mean(np.any(drawn != shown, axis=-1)) < 1e-4
