"""The JSON schema of an inventory file, for editors: what the models say, and nothing of its own."""

from __future__ import annotations

import json
from typing import Any

from hostkit.inventory.models import Inventory


def schema() -> dict[str, Any]:
    """Return the JSON schema of the format."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Inventory.model_json_schema(),
        "title": "hostkit inventory, format 1",
    }


def schema_text() -> str:
    """Return the schema as `inventory/schema.json` holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
