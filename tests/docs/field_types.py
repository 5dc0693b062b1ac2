"""Types of the fields of JSON documents, as docs/schema has them: what tests of the commands and of the page share."""
import json
import os
import pathlib

SCHEMAS = pathlib.Path(os.environ["DIAPASON_SOURCE"]) / "docs/schema"
KINDS = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}


def schema(name):
    with open(SCHEMAS / f"{name}.json", encoding="utf-8") as file:
        return json.load(file)


def fields(part, path):
    """All fields of a schema, each as (its name, its type, where it is): "object", "array of string"; numbers of all kinds are one type."""
    for name, field in part.get("properties", {}).items():
        where = f"{path}.{name}"
        types = field.get("type", [])
        kinds = {"number" if kind == "integer" else kind for kind in ([types] if isinstance(types, str) else types)} - {"null"}
        items = field.get("items", {})
        if kinds == {"array"} and "type" in items:
            kinds = {f"array of {items['type']}"}
        if "const" not in field and kinds != {"array"}:
            yield name, " or ".join(sorted(kinds)), where
        yield from fields(field, where)
        yield from fields(items, where + "[]")
    if isinstance(part.get("additionalProperties"), dict):
        yield from fields(part["additionalProperties"], path + ".*")


def types():
    """Where each field has which type: {name: {type: place}}."""
    found = {}
    for path in sorted(SCHEMAS.glob("*.json")):
        for name, kind, where in fields(schema(path.stem), path.stem):
            found.setdefault(name, {}).setdefault(kind, where)
    return found


def found_in(document, path):
    """The fields of a document, as fields() has those of a schema; without null and empty lists, whose types nobody sees."""
    if isinstance(document, list):
        for item in document:
            yield from found_in(item, path + "[]")
    if not isinstance(document, dict):
        return
    for name, value in document.items():
        if value is not None and value != []:
            yield name, f"array of {KINDS[type(value[0])]}" if isinstance(value, list) else KINDS[type(value)], f"{path}.{name}"
        yield from found_in(value, f"{path}.{name}")
