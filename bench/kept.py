# SPDX-License-Identifier: MIT
"""Results that are kept, docs/*.json, and those that wait to be: README.md has their schema."""

import json
import os

from results import BadInput


def read(path):
    """-> the parts, {} without a file"""
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            parts = json.load(file)
        if all(isinstance(row, dict) for part in parts.values() for row in part["rows"]):
            return parts
        wrong = "a row that is no object"
    except (OSError, AttributeError, LookupError, TypeError, ValueError) as error:
        wrong = repr(error)
    raise BadInput(f"{path}: wanted parts with rows, as bench/README.md has them, found "
                           f"{wrong}; of an older format? measure again")


def write(path, parts):
    """One row a line."""
    def block(value):
        if not isinstance(value, list):
            return json.dumps(value)
        return "[\n" + ",\n".join(f"   {json.dumps(row)}" for row in value) + "\n  ]"

    texts = (f' "{name}": {{\n' + ",\n".join(f'  "{key}": {block(value)}'
                                            for key, value in part.items()) + "\n }"
             for name, part in parts.items())
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(texts) + "\n}\n")
