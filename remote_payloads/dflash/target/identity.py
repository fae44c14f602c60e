"""What a target is, without loading it: hashes of its config, vocabulary, chat template and weights.

Standard library only, Python 3.8. Large weight files are sampled: header, and 64 KiB at 64 places; small
ones are hashed whole. A copy on another host has the same identity, another revision has not.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from dflash.errors import Refused

WHOLE = 64 << 20
PIECE = 64 << 10
PIECES = 64


def identify(folder: Path) -> Dict[str, Any]:
    """id, fingerprint, config_sha256, vocab_sha256, template_sha256, weights_sha256, dtype of a target's folder."""
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise Refused(f"{folder}: no target here (config.json is missing)", "give the folder of the model")
    config = read_object(config_file)
    text = config.get("text_config") or config
    weights = sorted(folder.glob("*.safetensors"))
    parts = {
        "config_sha256": _hash(json.dumps(config, sort_keys=True).encode()),
        "vocab_sha256": _vocabulary(folder),
        "template_sha256": _template(folder),
        "weights_sha256": _hash("".join(_sampled(f) for f in weights).encode()) if weights else None,
    }  # type: Dict[str, Optional[str]]
    name = config.get("_name_or_path") or folder.name
    joined = "".join(value or "" for _, value in sorted(parts.items()))
    return {
        "id": "{}@{}".format(name, _hash(joined.encode())[:16]),
        "fingerprint": _hash(joined.encode()),
        "dtype": text.get("dtype") or text.get("torch_dtype") or config.get("dtype"),
        **parts,
    }


def read_object(file: Path) -> Dict[str, Any]:
    """The JSON object in one of a target's files, or a refusal that names it."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refused("{}: not JSON: {}".format(file, error), "copy the whole model folder") from None
    if not isinstance(document, dict):
        raise Refused("{}: not a JSON object".format(file), "copy the whole model folder")
    return document


def vocabulary_files(folder: Path) -> List[Path]:
    """The files that decide which text is which token."""
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json")
    return [folder / name for name in names if (folder / name).is_file()]


def _vocabulary(folder: Path) -> Optional[str]:
    files = vocabulary_files(folder)
    return _hash(b"".join(f.read_bytes() for f in files)) if files else None


def _template(folder: Path) -> Optional[str]:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return _hash(file.read_bytes())
    for name in ("chat_template.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            found = read_object(folder / name).get("chat_template")
            if found:
                return _hash(json.dumps(found).encode() if not isinstance(found, str) else found.encode())
    return None


def _sampled(file: Path) -> str:
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as stream:
        if size <= WHOLE:
            digest.update(stream.read())
        else:
            header = int.from_bytes(stream.read(8), "little")
            digest.update(stream.read(min(header, WHOLE)))
            for piece in range(PIECES):
                stream.seek((size - PIECE) * piece // (PIECES - 1))
                digest.update(stream.read(PIECE))
    return digest.hexdigest()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
