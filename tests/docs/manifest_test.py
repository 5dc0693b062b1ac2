"""Validates manifests of packages that the program builds against docs/schema/packages/manifest.json."""
import copy
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import jsonschema

from field_types import schema

PROGRAM = os.environ["DIAPASON_PROGRAM"]
NAME = "packages/manifest"
# By version. Version 2: a concatenation in place.
PACKAGES = {
    1: ["gemm", "--m", "16", "--n", "16", "--k", "16"],
    2: ["unet-small", "--set", "image=32", "--set", "width=10"],
    3: ["bert-base", "--set", "layers=1", "--set", "vocab=50", "--set", "hidden=16", "--set", "heads=2", "--set", "intermediate=16", "--set", "seq=8",
        "--dim", "batch=1,4", "--mask", "attention_mask"],
}


def closed(part, key=""):
    """The schema with every object closed: fields that it does not describe are errors."""
    if isinstance(part, list):
        return [closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {name: value if name in ("if", "else", "then", "allOf", "required", "const", "enum") else closed(value, name) for name, value in part.items()}
    # What both kinds of manifest have is closed where it is used.
    return {**made, "unevaluatedProperties": False} if part.get("type") == "object" and "additionalProperties" not in part and key != "plan" else made


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.manifests = {version: cls.build(str(version), *model) for version, model in PACKAGES.items()}

    @classmethod
    def build(cls, name, *model):
        out = pathlib.Path(cls.folder.name) / name
        subprocess.run([PROGRAM, "build", *model, "--target", "cpu -num-cores=1", "--no-check", "--no-measure", "--out", out], capture_output=True,
                       timeout=120, check=True)
        return json.loads((out / "manifest.json").read_text(encoding="utf-8"))

    def is_valid(self, manifest):
        return jsonschema.Draft202012Validator(schema(NAME)).is_valid(manifest)

    def test_manifests_of_all_versions_are_as_the_schema_says(self):
        for version, manifest in self.manifests.items():
            with self.subTest(version=version):
                self.assertEqual(manifest["version"], version)
                jsonschema.Draft202012Validator(schema(NAME)).validate(manifest)

    def test_the_schema_has_every_field(self):
        validator = jsonschema.Draft202012Validator(closed(schema(NAME)))
        for version, manifest in self.manifests.items():
            with self.subTest(version=version):
                validator.validate(manifest)
                for at in (manifest, manifest["device"], (manifest if version < 3 else manifest["plans"][0])["tasks"][0]):
                    at["another"] = 1
                    self.assertFalse(validator.is_valid(manifest))
                    del at["another"]

    def test_manifests_of_older_builds_are_valid(self):
        for version, manifest in self.manifests.items():
            older = copy.deepcopy(manifest)
            for plan in older["plans"] if version == 3 else [older]:
                plan.pop("latency_us", None)
                for task in plan["tasks"]:
                    for field in ("stages", "work", "record_uuid", "record_source"):
                        task.pop(field, None)
            self.assertTrue(self.is_valid(older), version)

    def test_what_is_no_manifest_is_refused(self):
        one, parts, plans = (copy.deepcopy(self.manifests[version]) for version in (1, 2, 3))
        for bad in ({**one, "format": "zip"}, {**one, "version": 4}, {**one, "version": 3}, {**plans, "version": 1}, {**parts, "version": 1},
                    {**plans, "plans": []}, {**one, "weights": {"bytes": -1, "checksum": 0}}):
            self.assertFalse(self.is_valid(bad))
        for field in ("format", "version", "network", "target", "device", "weights", "arena_bytes", "inputs", "outputs", "tasks", "tensors", "steps"):
            self.assertFalse(self.is_valid({name: value for name, value in one.items() if name != field}), field)
        for field in ("sizes", "padding", "tasks"):
            self.assertFalse(self.is_valid({**plans, "plans": [{name: value for name, value in plans["plans"][0].items() if name != field}]}), field)


if __name__ == "__main__":
    unittest.main()
