"""The cases of the loader: each a YAML file, beside it what must come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent

ENVIRON = {
    "HOME": "/home/alice",
    "EMPTY": "",
    "BLANK": "  ",
    "TILDE": "~",
    "TILDE_PATH": "~/keys",
    "ROOT": "/",
    "SLASH_END": "/keys/",
    "DOTS": "/keys/..",
    "NEWLINE": "a\nb",
    "WORD": "many",
    "PORT": "2222",
    "USER_NUMBER": "1000",
}


def cases(kind: str) -> list[object]:
    """Return the files of a folder as parameters; a name that begins with a field report bears its marker."""
    parameters = []
    for file in sorted((FOLDER / kind).glob("*.yaml")):
        report = file.stem.split("_")[0]
        marks = [pytest.mark.report(report)] if report[1:].isdigit() else []
        parameters.append(pytest.param(file, id=file.stem, marks=marks))
    return parameters
