"""Validates what commands print with --json against docs/schema/NAME.json."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import jsonschema

import field_types
from field_types import SCHEMAS, schema

PROGRAM = os.environ["DIAPASON_PROGRAM"]
GEMM = ["gemm", "--m", "32", "--n", "32", "--k", "32", "--target", "cpu -num-cores=1"]


class Documents(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.seen = set()

    def document(self, name, *args, code=0):
        with self.subTest(command=" ".join(args)):
            run = subprocess.run([PROGRAM, *args, "--json"], cwd=self.folder.name, capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, code, run.stderr)
            found = json.loads(run.stdout)
            self.assertEqual(found["schema"], schema(name)["$id"])
            jsonschema.Draft202012Validator(schema(name)).validate(found)
            self.seen.add(name)
            return found

    def start(self, *args):
        """A command that runs until the test ends."""
        process = subprocess.Popen([PROGRAM, *args], cwd=self.folder.name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    def documents_of_a_history(self):
        self.document("tasks", "tasks", *GEMM)
        self.document("tune", "tune", *GEMM, "--history", "h.db", "--trials", "4", "--min-repeat-ms", "1")
        records = self.document("records", "query", "--history", "h.db")["records"]
        self.document("explanation", "explain", "--history", "h.db", "--record", str(records[0]["record"]))
        self.document("explanation", "explain", *GEMM, "--task", "1")
        self.document("build", "build", *GEMM, "--history", "h.db", "--out", "package")
        self.document("run", "run", "package", "--check", "--bench", "--duration", "0.05")
        self.document("profile", "profile", "package", "--duration", "0.05")
        self.document("package", "inspect", "package")
        self.document("model", "inspect", "gemm")
        self.document("history_info", "history", "info", "h.db")
        self.document("history_check", "history", "check", "h.db")
        self.document("history_export", "history", "export", "h.db", "--out", "lines")
        self.document("history_import", "history", "import", "other.db", "lines")
        self.document("history_copy", "history", "copy", "other.db", "copy.db")
        self.document("record_files_add", "records", "add", "h.db", "--out", "records.jsonl")
        self.document("record_files_check", "records", "check", "records.jsonl")
        self.document("record_files", "records", "list", "records.jsonl")
        self.document("history_prune", "history", "prune", "other.db")

    def documents_of_a_service(self):
        service = self.start("serve", "--listen", "127.0.0.1:0", "--history", "s.db")
        address = service.stdout.readline().split()[-1]  # "service listens on 127.0.0.1:9191"
        self.start("worker", "--tracker", address, "--devices", "cpu")
        job = str(self.document("submitted", "submit", *GEMM, "--trials", "2", "--min-repeat-ms", "1", "--service", address)["job"])
        for action in ("watch", "show"):
            self.document("job", "jobs", action, job, "--service", address)
        self.document("jobs", "jobs", "list", "--service", address)
        self.document("fleet", "fleet", "status", "--tracker", address)
        self.document("deleted_jobs", "jobs", "delete", job, "--service", address)

    def test_every_document_is_as_its_schema_says(self):
        self.documents_of_a_history()
        self.documents_of_a_service()
        self.document("networks", "networks")
        self.document("devices", "devices")
        self.document("error", "query", "--history", "none.db", code=1)
        self.document("error", "tune", "--jsn", code=2)
        self.assertEqual(self.seen, {path.stem for path in SCHEMAS.glob("*.json")})

    def test_a_field_has_the_same_type_in_all_documents(self):
        types = field_types.types()
        self.assertGreater(len(types), 200)
        self.assertEqual({name: found for name, found in types.items() if len(found) > 1}, {})

    def test_lines_of_an_export_are_as_their_schemas_say(self):
        for command in (("tune", *GEMM, "--history", "h.db", "--trials", "4", "--min-repeat-ms", "1"), ("history", "export", "h.db", "--out", "lines")):
            subprocess.run([PROGRAM, *command], cwd=self.folder.name, capture_output=True, timeout=120, check=True)
        header, *records = [json.loads(line) for line in (pathlib.Path(self.folder.name) / "lines").read_text(encoding="utf-8").splitlines()]
        jsonschema.Draft202012Validator(schema("lines/header")).validate(header)
        self.assertIn("tune", header["runs"][0]["command_line"])
        self.assertEqual(header["runs"][0]["host"], "")
        self.assertGreaterEqual(len(records), 4)
        for record in records:
            jsonschema.Draft202012Validator(schema("lines/record")).validate(record)
            self.assertEqual(record["run"], header["runs"][0]["uuid"])
            self.assertEqual([one["value"] for one in record["configuration"]], record["decisions"])

    def test_schemas_reject_what_is_missing_or_of_another_type(self):
        good = {"schema": "diapason.error/1", "error": "x"}
        validator = jsonschema.Draft202012Validator(schema("error"))
        self.assertTrue(validator.is_valid(good))
        for bad in ({"schema": "diapason.error/1"}, {**good, "error": 1}, {**good, "schema": "diapason.error/2"}):
            self.assertFalse(validator.is_valid(bad))


if __name__ == "__main__":
    unittest.main()
