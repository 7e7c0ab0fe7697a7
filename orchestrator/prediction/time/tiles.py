"""The time of matrix products at a card's full rate: what their tiles and waves add to it."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
"""Rows and columns of cuBLAS's tiles: a multiprocessor computes one of them at a time."""
_SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts the depth of a product may be divided."""
_LEAST_DEPTH = 256
"""Of a part. A tile's pipeline of four stages of 64 takes as long to fill, and to write it."""
_LOSS = 0.25
"""Tiles of half the size load as many operands for fewer operations, so they are so much slower:
the power of the share of the largest."""


def tiled_flop(
    sizes: NDArray[np.float64], multiprocessors: int, *, fills: bool
) -> NDArray[np.float64]:
    """Floating-point operations in whose time each product ends. ``sizes``: (n, 4), how many
    products, rows, columns, depth. ``fills``: whether a tile's pipeline has to be filled."""
    number, rows, columns, depth = sizes.T
    best = np.full(len(sizes), math.inf)
    for (height, width), parts in itertools.product(_TILES, _SPLITS):
        tiles = number * np.ceil(rows / height) * np.ceil(columns / width) * parts
        waves = np.ceil(tiles / multiprocessors)
        deep = depth / parts + _LEAST_DEPTH * fills
        speed = (height * width / (256 * 128)) ** _LOSS
        flop = waves * multiprocessors * 2 * height * width * deep / speed
        flop[(parts > 1) & (depth < parts * _LEAST_DEPTH)] = math.inf
        best = np.minimum(best, flop)
    return best
