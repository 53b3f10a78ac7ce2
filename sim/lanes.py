"""Beats as arrays of elements, and as images of a port: lane 0 in the least significant bits."""

from __future__ import annotations

import numpy as np

from ..intrinsics import DType
from ..intrinsics.numerics import Array, wrap


def pack_lanes(values: Array, dtype: DType, size: int) -> Array:
    """Images of ``size`` bytes from elements.

    Parameters
    ----------
    values : (beats, lanes) integers
        Taken modulo 2**width.
    dtype : DType
    size : int
        Bytes of the port's storage.

    Returns
    -------
    (beats, size) uint8
    """
    beats, lanes = values.shape
    images = np.zeros((beats, size), np.uint8)
    if dtype.width in (8, 16, 32, 64):
        used = np.ascontiguousarray(values, f"<i{dtype.width // 8}").view(np.uint8)
    else:
        octets = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(beats, lanes, 8)
        bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., : dtype.width]
        used = np.packbits(bits.reshape(beats, -1), axis=-1, bitorder="little")
    used = used.reshape(beats, -1) if beats else images
    images[:, : used.shape[1]] = used
    return images


def unpack_lanes(images: Array, dtype: DType, lanes: int) -> Array:
    """Elements from images.

    Parameters
    ----------
    images : (beats, size) uint8
    dtype : DType
    lanes : int

    Returns
    -------
    (beats, lanes) in the container dtype of ``dtype``
    """
    beats = len(images)
    bits = np.unpackbits(images, axis=-1, bitorder="little")[:, : lanes * dtype.width].reshape(beats, lanes, dtype.width)
    octets = np.packbits(bits, axis=-1, bitorder="little")
    wide = np.zeros((beats, lanes, 8), np.uint8)
    wide[..., : octets.shape[-1]] = octets
    return wrap(wide.view("<i8")[..., 0], dtype)
