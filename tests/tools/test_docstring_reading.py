"""Descriptions out of docstrings in the three usual styles."""

from __future__ import annotations

import pytest

from edgewise.tools.docstrings import read_docstring

GOOGLE = """Copy a file.

    Note: it overwrites.

    Args:
        source (str): The file: to copy
            from here.
        target: Where to.
        *rest: More.
        silent:

    Returns:
        size: The bytes copied.
    """

NUMPY = """Copy a file.

    Note: it overwrites.

    Parameters
    ----------
    source : str
        The file: to copy
        from here.
    target, rest : str, optional
        Where to.

    Returns
    -------
    size : int
        The bytes copied.
    """

SPHINX = """Copy a file.

    Note: it overwrites.

    :param source: The file: to copy
        from here.
    :param str target: Where to.
    :type target: str
    :returns: size
    :raises OSError: always
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_description_and_parameters_are_told_apart(docstring: str) -> None:
    description, parameters = read_docstring(docstring)
    assert description == "Copy a file.\n\nNote: it overwrites."
    assert parameters["source"] == "The file: to copy from here."
    assert parameters["target"] == "Where to."
    assert "size" not in parameters
    assert "silent" not in parameters


def test_a_docstring_without_sections_is_all_description() -> None:
    assert read_docstring("Look at :param x in words.\n\nThat is all.") == (
        "Look at :param x in words.\n\nThat is all.",
        {},
    )


def test_no_docstring_says_nothing() -> None:
    assert read_docstring(None) == ("", {})
