"""Says any Python value in JSON or in words; what neither can hold, by its repr.

:func:`simpler` takes one step, from an object to something nearer to JSON; :func:`to_json` takes all of them. The C
encoder does the usual case. What it refuses (cycles, keys that are no strings, numbers of thousands of digits) is
walked by hand, so that nothing a tool returns can raise here.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import numbers
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

_DEPTH = 60
_AS_STR = (datetime.timedelta, range, types.SimpleNamespace)
_AS_STR_MODULES = ("uuid", "ipaddress")
_AS_ISO = (datetime.datetime, datetime.date, datetime.time)

_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (8, b"WEBP", "image/webp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"\xfd7zXZ\0", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\x7fELF", "application/x-elf"),
    (0, b"\0asm", "application/wasm"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (4, b"ftyp", "video/mp4"),
    (8, b"WAVE", "audio/wav"),
    (0, b"OggS\0", "audio/ogg"),
)


def media_type_of(data: bytes) -> str | None:
    """The media type that the first bytes of ``data`` give away, None when they don't."""
    for at, magic, media_type in _MAGIC:
        if data.startswith(magic, at) and (at == 0 or _is_container(data, at)):
            return media_type
    # A text may well begin with these six letters; the zero is the picture's aspect ratio, which nobody sets.
    if data.startswith((b"GIF87a", b"GIF89a")) and data[12:13] == b"\0":
        return "image/gif"
    return None


def _is_container(data: bytes, at: int) -> bool:
    """Whether what stands at ``at`` is a mark rather than a word of some text."""
    return data.startswith(b"RIFF") if at == 8 else b"\0" in data[:300]


def safe_repr(value: object) -> str:
    """``repr(value)``, or what stands for it when that raises."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} object whose repr raises {type(error).__name__}>"


def simpler(value: object, odd: set[str]) -> object:
    """``value`` one step nearer to JSON: words, or a container whose items may need a step of their own.

    The name of a type that has no such form goes into ``odd``.
    """
    try:
        return _simpler(value, odd)
    except Exception:
        odd.add(type(value).__name__)
        return safe_repr(value)


def _simpler(value: Any, odd: set[str]) -> object:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else os.fsdecode(path)
    if isinstance(value, _AS_STR) or type(value).__module__ in _AS_STR_MODULES:
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _words_of_bytes(bytes(value))
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return _in_order(value)
    if isinstance(value, type):
        odd.add("type")
        return safe_repr(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for naming in ("__attrs_attrs__", "__struct_fields__"):
        fields = getattr(type(value), naming, None)
        if fields is not None:
            names = [getattr(field, "name", field) for field in fields]
            return {name: getattr(value, name) for name in names}
    for method, options in (("model_dump", {"mode": "json"}), ("tolist", {})):
        if callable(getattr(type(value), method, None)):
            return getattr(value, method)(**options)
    if isinstance(value, numbers.Number):
        return str(value)
    if isinstance(value, Sequence) or type(value).__name__ in ("deque", "dict_values"):
        return list(value)
    odd.add(type(value).__name__)
    return safe_repr(value)


def _words_of_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data):,} bytes of {media_type_of(data) or 'binary data'}>"


def _in_order(items: Iterable[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=safe_repr)


def to_json(value: object, odd: set[str]) -> str:
    """``value`` as JSON text for a reader: characters as they are, NaN and infinities by their names. Never raises."""
    try:
        return json.dumps(value, ensure_ascii=False, default=functools.partial(simpler, odd=odd))
    except Exception:
        return json.dumps(_walked(value, odd, ()), ensure_ascii=False)


def _walked(value: Any, odd: set[str], above: tuple[int, ...]) -> Any:
    """``value`` in dicts, lists and scalars that the encoder takes, cycles and depths cut off."""
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < 10_000 else f"<a number of {value.bit_length():,} bits>"
    if id(value) in above:
        return f"<the same {type(value).__name__} again>"
    if len(above) >= _DEPTH:
        return f"<{type(value).__name__}, nested too deeply to show>"
    above = (*above, id(value))
    if isinstance(value, dict):
        return {_key(key, odd): _walked(item, odd, above) for key, item in list(value.items())}
    if isinstance(value, (list, tuple)):
        return [_walked(item, odd, above) for item in list(value)]
    return _walked(simpler(value, odd), odd, above)


def _key(key: object, odd: set[str]) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, (bool, int, float)):
        plain = _walked(key, odd, ())
        return plain if isinstance(plain, str) else json.dumps(plain)
    named = simpler(key, set())
    return named if isinstance(named, str) else safe_repr(key)
