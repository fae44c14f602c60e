"""The kinds of values that inventory fields hold, each refusing what only looks like it."""

from __future__ import annotations

import re
import warnings
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StringConstraints, WithJsonSchema

from hostkit.inventory.addresses import host_address, login_name, ssh_alias
from hostkit.inventory.faults import shown
from hostkit.inventory.variables import Expanded

# Directories that belong to the system: nothing of hostkit's is kept in them directly, so that no mirror or
# clean-up ever has one of them as its base.
_SYSTEM = re.compile(
    "/(bin|boot|dev|etc|home|lib|lib64|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr(/local)?|var(/lib|/log)?)?"
)
_INTERPRETERS = re.compile(r"(\S*/)?(python[0-9.]*|torchrun|accelerate|deepspeed|bash|sh|env|srun|nohup)\s")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_URL = re.compile(r"https?://[^\s/]+(/\S*)?")


def absolute(path: str) -> str:
    """Return an absolute path in its plain form, without a slash at its end. Raises ValueError."""
    if path.startswith("~"):
        raise ValueError(f"{shown(path)} begins with ~, which nobody expands; write the absolute path")
    if match := re.match(r"\$([A-Za-z_]\w*)|(?P<host>[\w.@-]+):/", path):
        if match["host"]:
            raise ValueError(f"{shown(path)} names a host; write the path alone, the host has its own key")
        raise ValueError(
            f"{shown(path)} begins with a bare variable; write ${{{match[1]}}} for one of this machine"
        )
    if not path.startswith("/"):
        raise ValueError(f"{shown(path)} is not an absolute path; write one that begins with /")
    if re.search(r"[\x00-\x1f\x7f]", path) or path != path.strip():
        raise ValueError(f"{shown(path)} has blanks at its end or control characters; write the path alone")
    if re.search(r"\$[A-Za-z_{(]", path):
        raise ValueError(f"{shown(path)} holds a bare variable; write ${{NAME}} for one of this machine")
    parts = path.rstrip("/").split("/")[1:]
    if "" in parts:
        raise ValueError(
            f"{shown(path)} has an empty part; write it without // (did a variable come out short?)"
        )
    if "." in parts or ".." in parts:
        raise ValueError(f"{shown(path)} goes through . or ..; write the path that it comes to")
    if len(path.encode()) > 4000 or any(len(part.encode()) > 255 for part in parts):
        raise ValueError(f"{shown(path)} is too long for a file system; write a shorter one")
    return path.rstrip("/") or "/"


def _file(path: str) -> str:
    if path.endswith("/"):
        raise ValueError(f"{shown(path)} is a folder; write the path of a file")
    return absolute(path)


def _folder(path: str) -> str:
    plain = absolute(path)
    if _SYSTEM.fullmatch(plain):
        raise ValueError(f"{plain} belongs to the system; write a folder of its own below it")
    return plain


def _root(path: str) -> str:
    plain = absolute(path)
    if plain == "/":
        raise ValueError("/ holds everything; write the folder below which the run saves")
    return plain


def _interpreter(text: str) -> str:
    if any(character.isspace() for character in text):
        raise ValueError(
            f"{shown(text)} is more than one word; write the interpreter alone, without arguments"
        )
    if text.startswith("-"):
        raise ValueError(f"{shown(text)} is an option; write the interpreter, such as /usr/bin/python3")
    if "/" in text or "~" in text:
        return _file(text)
    return text


def _script(text: str) -> str:
    if _INTERPRETERS.match(text) or " -" in text:
        raise ValueError(
            f"{shown(text)} is a command line; write the script alone (its arguments go into args)"
        )
    if text.startswith("-") or text != text.strip():
        raise ValueError(f"{shown(text)} is not a script; write its name or path, such as train.py")
    return text


def _module(text: str) -> str:
    if text.endswith(".py") or "/" in text:
        raise ValueError(f"{shown(text)} is a file; write script: {shown(text)} instead of module:")
    if not _MODULE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a module; write what follows python -m, such as trainer.main")
    return text


def _argument(text: str) -> str:
    if re.match(r"--?\w\S*\s+\S", text):
        raise ValueError(f"{shown(text)} looks like two words; write each word as an item of its own")
    return text


def _step_pattern(pattern: str) -> str:
    if pattern.count("{step}") != 1:
        raise ValueError(f"{shown(pattern)} must hold {{step}} once; write it where the number stands")
    if re.search(r"[{}]", pattern.replace("{step}", "")):
        raise ValueError(f"{shown(pattern)} holds other braces; write {{step}} and nothing else in braces")
    if pattern.startswith(("/", "~")) or {"", ".", ".."} & set(pattern.split("/")):
        raise ValueError(
            f"{shown(pattern)} is not a plain path below root; write one such as step_{{step}}/checkpoint.pt"
        )
    return pattern


def _leaf(name: str) -> str:
    if "/" in name or name in (".", ".."):
        raise ValueError(f"{shown(name)} is a path; write the name of a file beside the checkpoint")
    return name


def _key_path(text: str) -> str:
    if re.search(r"[\[\]]", text):
        names = ".".join(re.findall(r"\[\s*[\"']?([^\[\]\"']+)[\"']?\s*\]", text)) or "state.model"
        raise ValueError(
            f"{shown(text)} is an expression; write names with dots between them, such as {names}"
        )
    if text != text.strip() or "" in text.split("."):
        raise ValueError(
            f"{shown(text)} has an empty name; write names with dots between them, as state.model"
        )
    return text


def _prefix(text: str) -> str:
    if re.search(r"[*?\s\[\]]", text):
        raise ValueError(
            f"{shown(text)} is a pattern; write the words that stand before a name, such as module."
        )
    if not text.endswith(".") or "" in text[:-1].split("."):
        raise ValueError(
            f"{shown(text)} is not a prefix; write it with the dot at its end, {text.strip('.')}."
        )
    return text


def _web(text: str) -> str:
    if not _URL.fullmatch(text):
        raise ValueError(f"{shown(text)} is not an http address; write one such as http://127.0.0.1:30000/v1")
    return text


def _prompts(text: str) -> str:
    return text if text == "bundled" else _file(text)


def regular_expression(text: str, *, groups: int = 0) -> str:
    """Return text if it compiles as a regular expression with that many groups. Raises ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(
            f"{shown(text)} is not a regular expression ({error}); write one in single quotes"
        ) from error
    if compiled.groups < groups:
        raise ValueError(
            f"{shown(text)} has no group; write ( ) around the part to read, as in 'step (\\d+)'"
        )
    return text


def _number_of_environment(value: object) -> object:
    return int(value) if isinstance(value, Expanded) and re.fullmatch(r"-?[0-9]{1,18}", value) else value


Integer = Annotated[StrictInt, BeforeValidator(_number_of_environment)]
Port = Annotated[Integer, Field(ge=1, le=65535)]
Count = Annotated[Integer, Field(ge=1)]
Index = Annotated[Integer, Field(ge=0)]

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,62}$")]
Text = Annotated[str, StringConstraints(min_length=1)]
_CONTAINER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
Container = Annotated[
    str,
    StringConstraints(pattern=_CONTAINER),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),  # a VMID is a name here
    WithJsonSchema({"type": ["string", "integer"], "pattern": _CONTAINER}),
]
_Path = Annotated[Text, Field(json_schema_extra={"pattern": r"^(/|\$\{)"})]
HostPath = Annotated[_Path, AfterValidator(absolute)]
FilePath = Annotated[_Path, AfterValidator(_file)]
Folder = Annotated[_Path, AfterValidator(_folder)]
RootFolder = Annotated[_Path, AfterValidator(_root)]
Address = Annotated[Text, AfterValidator(host_address)]
Alias = Annotated[Text, AfterValidator(ssh_alias)]
Login = Annotated[Text, AfterValidator(login_name)]
Interpreter = Annotated[Text, AfterValidator(_interpreter)]
Script = Annotated[Text, AfterValidator(_script)]
Module = Annotated[Text, AfterValidator(_module)]
Argument = Annotated[Text, AfterValidator(_argument)]
StepPattern = Annotated[Text, AfterValidator(_step_pattern)]
Leaf = Annotated[Text, AfterValidator(_leaf)]
KeyPath = Annotated[Text, AfterValidator(_key_path)]
Prefix = Annotated[Text, AfterValidator(_prefix)]
Web = Annotated[Text, AfterValidator(_web)]
Prompts = Annotated[Text, AfterValidator(_prompts)]
Regex = Annotated[Text, AfterValidator(regular_expression)]
