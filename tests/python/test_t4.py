"""`diapason history export --format t4` against the schema that Kernel Tuner comes with."""

import importlib.util
import json
import pathlib
import subprocess

import jsonschema
import pytest
from conftest import PROGRAM

# docs/history.md; "infrastructure" is left out.
WORDS = {"instantiation": "constraints", "lowering": "constraints", "compile": "compile", "build_timeout": "timeout", "build_crash": "compile",
         "run_timeout": "timeout", "run_crash": "runtime", "out_of_memory": "runtime", "illegal_access": "runtime", "launch_failure": "runtime",
         "wrong_result": "correctness", "unknown": "runtime"}


@pytest.fixture(scope="module")
def schema():
    (folder,) = importlib.util.find_spec("kernel_tuner").submodule_search_locations
    loaded = json.loads((pathlib.Path(folder) / "schema/T4/1.0.0/results-schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(loaded)
    return jsonschema.Draft202012Validator(loaded)


def diapason(folder, *args, **options):
    return subprocess.run([PROGRAM, *args], cwd=folder, capture_output=True, text=True, timeout=100, check=True, **options).stdout


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Two tasks that were measured, and failures of every kind of one of them."""
    folder = tmp_path_factory.mktemp("t4")
    for size in ("16", "24"):
        diapason(folder, "tune", "gemm", "--m", size, "--n", "16", "--k", "16", "--target", "cpu -num-cores=1", "--history", "h.db",
                 "--trials", "4", "--min-repeat-ms", "1", "--no-check")
    record = json.loads(diapason(folder, "history", "export", "h.db").splitlines()[1])
    del record["timing"], record["checksum"]
    record["verified"] = "unknown"
    record.pop("max_error", None)
    lines = [{**record, "uuid": f"{number + 1:032x}", "error": {"kind": kind, "stage": "run", "text": "it \"failed\"\n"}}
             for number, kind in enumerate([*WORDS, "infrastructure"])]
    diapason(folder, "history", "import", "h.db", input="".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def document(history):
    return json.loads(diapason(history, "history", "export", "h.db", "--format", "t4"))


def measured(result, name):
    return next((one["value"] for one in result["measurements"] if one["name"] == name), None)


def test_the_document_is_as_the_schema_says(schema, document):
    schema.validate(document)
    assert document["schema_version"] == "1.0.0"
    assert not schema.is_valid({**document, "results": [{**document["results"][0], "invalidity": "crashed"}]})


def test_all_tasks_and_all_kinds_of_errors_are_in_it(document):
    timed = [result for result in document["results"] if measured(result, "time") is not None]
    assert {result["task"] for result in timed} == {"gemm_16x16x16", "gemm_24x16x16"}
    assert len(timed) == 8
    assert {result["invalidity"] for result in timed} == {"correct"}
    failed = {measured(result, "error_kind"): result["invalidity"] for result in document["results"] if result not in timed}
    assert failed == WORDS


def test_configurations_have_the_names_that_explain_shows(history, document):
    shown = json.loads(diapason(history, "explain", "--history", "h.db", "--record", "1", "--json"))
    assert document["results"][0]["configuration"] == {"sketch": document["results"][0]["configuration"]["sketch"],
                                                       **{one["name"]: one["value"] for one in shown["configuration"]}}
    assert len(shown["configuration"]) > 2


def test_times_are_milliseconds(history, document):
    line = json.loads(diapason(history, "history", "export", "h.db").splitlines()[1])
    result = document["results"][0]
    assert result["times"]["runtimes"] == pytest.approx([1e3 * sample for sample in line["timing"]["samples"]])
    assert min(result["times"]["runtimes"]) <= measured(result, "time") <= max(result["times"]["runtimes"])


def test_filters_and_files(schema, history):
    printed = diapason(history, "history", "export", "h.db", "--format", "t4", "--model", "gemm", "--out", "h.json")
    schema.validate(json.loads((history / "h.json").read_text()))
    assert printed.startswith("exported ")
    refused = subprocess.run([PROGRAM, "history", "export", "h.db", "--format", "t5"], cwd=history, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "jsonl" in refused.stderr and "t4" in refused.stderr
