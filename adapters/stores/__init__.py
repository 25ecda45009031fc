"""Stores: where a session's journal is kept. Each is a module of its own."""

from edgewise.adapters.stores.jsonl import JsonlJournal, read_jsonl

__all__ = ["JsonlJournal", "read_jsonl"]
