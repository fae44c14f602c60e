"""Whatever the file holds, the loader returns an inventory or raises a ConfigError with faults, and soon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hostkit.errors import ConfigError
from hostkit.inventory import Inventory
from hostkit.inventory.document import parse
from hostkit.inventory.loading import check_bytes
from hostkit.inventory.models import Eval, Host, Run
from hostkit.inventory.scalars import Surprise, plain

from .cases import FOLDER

HEAD = "hostkit: 1\narchive: /data/archive\nhosts:\n  trainer: {address: 10.0.0.1}\n"

# No deadline: a busy machine is no fault of the loader, and test_bytes holds it to its time.
FEW = settings(deadline=None)
MANY = settings(deadline=None, max_examples=300)

# Pieces of YAML and of the format, so that random texts get past the first line.
PIECES = [
    *(
        "hostkit: 1\n",
        "archive: ",
        "/data/x",
        "hosts:\n",
        "runs:\n",
        "evals:\n",
        "defaults: ",
        "&a ",
        "*a",
        "<<: ",
    ),
    *(
        "  ct: ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "? ",
        "| ",
        "> ",
        "---\n",
        "...\n",
    ),
    *(
        "address: ",
        "via: ",
        "ct",
        "no",
        "~",
        "10",
        "010",
        "1:30",
        "3.10",
        '"',
        "'",
        "#",
        "\t",
        "${HOME}",
        "${",
        "!!str ",
    ),
    *(
        "process: {script: a.py}",
        "host: ct",
        "timeouts: {stall: 5m}",
        "\\",
        "%",
        "@",
        "`",
        "\u00a0",
        "\u2028",
        "é",
        "\r",
    ),
]


def outcome(content: bytes) -> Inventory | tuple[str, ...]:
    try:
        return check_bytes(content, Path("f"), {"HOME": "/home/alice"}).inventory
    except ConfigError as error:
        assert error.faults
        assert all(fault.startswith("f:") and fault.isprintable() for fault in error.faults)
        return error.faults


@given(st.binary(max_size=400))
@example(b'a: "\\UFFFFFFFF"')
@example(b'%TAG ! tag:%ff\n---\n"a": !x b')
@example(b"%YAML 1." + b"9" * 5000 + b"\n---\n{}")
@FEW
def test_any_bytes(content: bytes) -> None:
    outcome(content)


@given(st.text(max_size=400))
@FEW
def test_any_text(text: str) -> None:
    outcome(text.encode("utf-8", "surrogatepass"))


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@MANY
@example("hosts: &a\n  ct: {<<: *a}\n")
def test_any_text_that_looks_like_an_inventory(text: str) -> None:
    outcome(text.encode())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["trainer", "/x", "5m"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def entries(model: type) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with the model's own keys and any values."""
    return st.dictionaries(st.sampled_from(list(model.model_fields)), VALUES, max_size=5)  # type: ignore[attr-defined]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "hostkit": VALUES,
            "archive": VALUES,
            "defaults": VALUES,
            "notify": VALUES,
            "hosts": VALUES
            | st.dictionaries(st.sampled_from(["a", "A", "trainer"]), VALUES | entries(Host), max_size=3),
            "runs": VALUES
            | st.dictionaries(st.sampled_from(["r", "R", "s"]), VALUES | entries(Run), max_size=3),
            "evals": VALUES
            | st.dictionaries(st.sampled_from(["e", "f"]), VALUES | entries(Eval), max_size=2),
        },
    )
)
@example({"evals": {"e": {"run": "0"}}, "runs": {"\x1f": {}}})
@MANY
def test_any_values_under_the_formats_own_keys(values: dict[str, Any]) -> None:
    outcome(yaml.safe_dump(values, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(
    st.text(
        st.characters(exclude_categories=["Cc", "Cs", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"]) | st.just(" "),
        min_size=1,
    )
)
@FEW
def test_a_text_in_quotes_is_that_text(text: str) -> None:
    document = parse(f"key: {json.dumps(text, ensure_ascii=False)}\n", {})
    assert document.faults == [] or "${" in text
    assert "${" in text or document.data == {"key": text}


@given(
    st.from_regex(r"[-+]?[0-9a-fxo_.:eTZ-]{1,12}", fullmatch=True)
    | st.sampled_from(
        ["yes", "No", "ON", "NULL", "~", "=", "true", "22:22", "010", "0o7", "2026-11-30", "1_0", ".inf"]
    )
)
@MANY
@example("0x_")
@example("0._")
@example("0x" + "f" * 5000)
@example("0b" + "1" * 16000)
@example("0" * 16000)
@example("0" + "7" * 16000)
@example("1_" + "0" * 16000)
@example("1." + "0" * 16000)
@example("1" * 16000 + "e5")
@example("1" + ":59" * 5000)
@example("9" * 16000 + ":5")
def test_an_unquoted_word_is_text_only_where_pyyaml_takes_it_for_text_too(word: str) -> None:
    kind = plain(word)
    assume(not isinstance(kind, Surprise))
    try:
        read = yaml.safe_load(f"key: {word}")["key"]
    except yaml.YAMLError:
        assume(False)
    assume(not isinstance(read, dict | list))
    assert (read, type(read)) == (kind, type(kind))


@given(st.integers(-(10**17), 10**17))
@FEW
def test_a_decimal_number_is_that_number(number: int) -> None:
    assert plain(str(number)) == number


def test_the_files_of_faults_and_the_files_they_are_of_stand_together() -> None:
    for kind, suffix in (("faulty", ".faults"), ("sound", ".json")):
        sources = {file.stem for file in (FOLDER / kind).glob("*.yaml")}
        assert sources == {file.stem for file in (FOLDER / kind).glob(f"*{suffix}")}
        assert sources
