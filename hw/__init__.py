"""Amaranth blocks that implement the instructions of the contract."""
