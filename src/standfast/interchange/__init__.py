"""Copies for people and other programs: imports of foreign data, bundles, text exports and the reports of hooks.

An import writes into the record and only reads its source. Exports are copies: if one is lost, nothing is lost.
"""
