"""The inventories that people copy are sound, and the schema that their editors read is the models'."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from hostkit.inventory.loading import check, check_bytes
from hostkit.inventory.schema import schema, schema_text

EXAMPLES = Path(__file__).parents[3] / "inventory"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may be contacted, and no program started, while a file is checked."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was contacted")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("HOME", "/home/alice")


def test_the_fleet_is_that_of_the_story() -> None:
    loaded = check(EXAMPLES / "fleet.yaml")
    fleet = loaded.inventory
    assert loaded.notes == ()
    assert (fleet.hosts["ct129"].address, fleet.hosts["pve"].address) == ("10.1.230.172", "10.1.2.6")
    assert (fleet.hosts["pve"].via, fleet.hosts["pve"].login) == ("ct129", "there")
    assert (fleet.hosts["ct200"].pct, fleet.hosts["ct200"].via) == (200, "pve")
    run, evaluation = fleet.runs["drafter"], fleet.evals["drafter"]
    assert (run.host, run.process.script, run.gpus) == ("ct200", "train_dflash_pipeline.py", list(range(8)))
    assert run.checkpoints is not None
    assert (run.checkpoints.every, run.block_size, evaluation.block_size) == (2000, 32, 16)
    assert (evaluation.host, evaluation.limits.memory) == ("ct129", 72 * 2**30)


def test_the_plain_example_needs_neither_proxmox_nor_dflash() -> None:
    plain = check(EXAMPLES / "plain.yaml").inventory
    assert [host.pct for host in plain.hosts.values()] == [None]
    assert plain.evals == {}


def test_an_archive_left_out_is_in_the_users_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_DATA_HOME"):  # no variable is needed, and nothing is created by reading
        monkeypatch.delenv(name, raising=False)
    plain = check(EXAMPLES / "plain.yaml").inventory
    assert plain.archive is None
    assert plain.archive_folder.endswith("/.local/share/hostkit/archive")


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_is_sound(file: Path) -> None:
    check(file)


def test_the_examples_to_copy_name_their_schema() -> None:
    for name in ("fleet", "plain"):
        assert (
            (EXAMPLES / f"{name}.yaml")
            .read_text()
            .startswith("# yaml-language-server: $schema=./schema.json\n")
        )


def test_the_schema_file_is_what_the_models_say() -> None:
    assert (EXAMPLES / "schema.json").read_text() == schema_text(), (
        "run: hostkit inventory --schema > inventory/schema.json"
    )


def test_the_schema_knows_every_key_of_the_examples() -> None:
    made = schema()

    def known(value: object, shape: dict[str, object]) -> None:
        while "$ref" in shape:
            shape = made["$defs"][str(shape["$ref"]).rsplit("/", 1)[1]]
        shapes = [
            part for part in shape.get("anyOf", shape.get("oneOf", [])) if "$ref" in part or "type" in part
        ]  # type: ignore[attr-defined]
        if shapes and "properties" not in shape:
            refs = [part for part in shapes if "$ref" in part]
            if isinstance(value, dict) and refs:
                known(value, refs[0])
            return
        if isinstance(value, dict) and "properties" in shape:
            assert set(value) <= set(shape["properties"])  # type: ignore[call-overload]
            for key, inner in value.items():
                known(inner, shape["properties"][key])  # type: ignore[index]
        elif isinstance(value, dict):
            inner_shape = shape.get("additionalProperties") or next(iter(shape["patternProperties"].values()))  # type: ignore[attr-defined]
            for inner in value.values():
                known(inner, inner_shape)

    for file in EXAMPLES.glob("*.yaml"):
        known(yaml.safe_load(file.read_text()), made)


def test_every_key_of_the_format_is_described_or_holds_described_ones() -> None:
    bare = [
        f"{name}.{key}"
        for name, model in schema()["$defs"].items()
        for key, field in model["properties"].items()
        if not field.get("description") and "$ref" not in json.dumps(field)
    ]
    assert bare == []


def test_what_the_readme_shows_is_sound() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    blocks = re.findall(r"^( *)```yaml\n(.*?)^ *```", readme, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for indent, block in blocks:
        text = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
        head = "hostkit: 1\n"
        if "host: trainer" in text:
            head += "hosts: {trainer: {alias: trainer}}\n"
        elif "hosts:" not in text:
            head += "hosts: {ct129: {address: h}}\nruns: {drafter: {host: ct129, process: {script: a.py}}}\n"
        check_bytes((head + text).encode(), Path("README.md"))
