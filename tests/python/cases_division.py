"""Divisions by a constant."""
