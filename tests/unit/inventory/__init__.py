"""Tests of the inventory: data files in `faulty` and `sound`, and what no file can show."""
