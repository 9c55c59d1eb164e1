"""What training finds on given data: `minima` from many starts, and a `summary` of their energies and overlaps."""

from replicode.validation.landscape import minima as minima
from replicode.validation.landscape.minima import FAMILIES, Landscape, Minimum, explore
from replicode.validation.landscape.summary import overlaps_of, summary

__all__ = ["FAMILIES", "Landscape", "Minimum", "explore", "overlaps_of", "summary"]
