"""Result records: one measured or published row each, with provenance, a content-addressed key and a store.

A figure reads records only and a number in prose comes from a record. This package never imports torch.
"""

from analysis.records.plain import plain
from analysis.records.provenance import code_digest, file_digest, provenance
from analysis.records.record import INPUTS, Kind, Record, difference, key_of, published
from analysis.records.store import Store, select
from analysis.records.table import RecordTable, format_value, to_frame

__all__ = [
    "INPUTS",
    "Kind",
    "Record",
    "RecordTable",
    "Store",
    "code_digest",
    "difference",
    "file_digest",
    "format_value",
    "key_of",
    "plain",
    "provenance",
    "published",
    "select",
    "to_frame",
]
