"""The page's addresses: documents, headers, refusals."""

import http.client
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

import field_types
import histories
from conftest import HOSTILE, PROGRAM, Server

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def run(*args):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_the_history_is_one_document(server):
    found = server.json("api/history")
    assert found["schema"] == "diapason.page.history/2"
    assert found["live"] and not found["has_jobs"] and not found["has_fleet"]
    assert found["total_trials"] == 73
    assert RFC3339.fullmatch(found["origin"])
    columns = found["trials"]
    assert {len(column) for column in columns.values()} == {73}
    assert [name for name in columns if name.endswith("_us")] == ["after_us", "median_us", "predicted_us"]
    for i in range(73):
        assert (columns["median_us"][i] is None) == (columns["error"][i] >= 0)
    names = [workload["task"] for workload in found["workloads"]]
    for text in HOSTILE[:5]:
        assert text in names and text in found["sketches"] and text in [error["text"] for error in found["errors"]]
    assert [network["network"] for network in found["networks"]] == [HOSTILE[0], "another network " * 8]
    assert [run["run"] for run in found["runs"]] == [1, 2]
    assert all(RFC3339.fullmatch(run["started_at"]) for run in found["runs"])
    assert found["workloads"][0]["flops"] == 32 * 48 * 64 * 2


def test_a_record_is_explained_apart(server):
    history = server.json("api/history")["trials"]
    timed = history["record"][history["error"].index(-1)]
    record = server.json(f"api/records/{timed}")
    assert record["schema"] == "diapason.page.record/2"
    assert record["record"] == timed
    assert "for " in record["loops"] or "parallel " in record["loops"]
    assert "#include" in record["source"] or "void" in record["source"]
    assert record["measurement"]["median_us"] > 0
    failed = history["record"][next(i for i, error in enumerate(history["error"]) if error >= 0)]
    assert server.json(f"api/records/{failed}")["measurement"]["error_kind"] in {error[0] for error in histories.ERRORS}
    status, _, text = server.get("api/records/999999")
    assert status == 404
    assert json.loads(text) == {"schema": "diapason.page.error/1", "error": json.loads(text)["error"]}
    assert "has no record 999999" in json.loads(text)["error"]


def test_nothing_runs_but_the_pages_own_files(server):
    for path in ["", "main.js", "chart.js", "api/history", "api/none", "none"]:
        _, headers, _ = server.get(path)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"), path
        assert "unsafe" not in policy and "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    page = server.get("")[2]
    assert "http://" not in page and "https://" not in page and "style=" not in page
    assert not re.search(r"<script(?! src=\"[a-z]+\.js\" defer>)", page)


def test_other_addresses_and_methods_are_refused(server):
    assert server.get("none")[0] == 404
    assert server.get("../../etc/passwd")[0] == 404
    assert server.get("api/records/1/2")[0] == 404
    assert server.get("api/records/99999999999999999999")[0] == 404
    status, _, text = server.get("api/events?after=x")
    assert (status, json.loads(text)["error"]) == (400, "give the version of the history that you have, as in /api/events?after=1")
    status, _, text = server.get("api/fleet")
    assert (status, json.loads(text)["error"]) == (
        404, "there is no fleet here: only `diapason serve --http` has it, and this is a history alone")
    connection = http.client.HTTPConnection(server.url.split("/")[2])
    connection.request("POST", "/api/history", body="x" * 100)
    assert connection.getresponse().status == 404


def test_another_host_name_is_refused(server):
    port = server.url.rstrip("/").split(":")[-1]
    for host, status in [("127.0.0.1:" + port, 200), ("localhost:" + port, 200), ("localhost", 200), ("evil.example:" + port, 403),
                         ("127.0.0.1.evil.example", 403), ("", 403)]:
        assert server.get("api/history", Host=host)[0] == status, host
    error = json.loads(server.get("", Host="evil.example")[2])["error"]
    assert error == f"this page is at {server.url}, and the request names another host; open it by that address"


def read_events(server, after, wanted, **headers):
    """The first events of a stream."""
    connection = http.client.HTTPConnection(server.url.split("/")[2], timeout=30)
    connection.request("GET", f"/api/events?after={after}", headers=headers)
    response = connection.getresponse()
    assert response.status == 200 and response.headers["Content-Type"] == "text/event-stream"
    events, name = [], None
    while len(events) < wanted:
        line = response.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            events.append([name, json.loads(line[6:])])
    connection.close()
    return events


def test_changes_come_as_events(server, history, base):
    version = server.json("api/history")["version"]
    more = [histories.Maker(base, seed=9).trial(0, 50, created_at=histories.START, uuid="f" * 32)]
    timer = threading.Timer(0.5, lambda: histories.write(PROGRAM, history, more))
    timer.start()
    (name, change), = read_events(server, version, 1)
    timer.join()
    assert name == "change" and change["schema"] == "diapason.page.change/2"
    assert change["version"] == version + 1
    assert change["total_trials"] == 74 and len(change["trials"]["record"]) == 1
    # Who comes back catches up; who has a version that never was, reads everything again.
    assert read_events(server, version, 1)[0][1] == change
    assert read_events(server, 12345, 1) == [["again", {}]]
    assert len(server.json("api/history")["trials"]["record"]) == 74


def test_a_report_holds_everything_and_asks_for_nothing(history, tmp_path):
    code, out, err = run("report", "--history", history, "--out", tmp_path / "r.html", "--details", 3)
    assert code == 0, err
    assert out.startswith(f"report in {tmp_path}/r.html: one file of ")
    html = (tmp_path / "r.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="diapason-data">(.*?)</script>', html, re.S)[1])
    assert data["history"]["total_trials"] == 73
    assert len(data["records"]) == 3
    assert all("loops" in record for record in data["records"].values())
    assert "window.hurt = 1</script>" not in html
    code, _, err = run("report", "--history", history, "--out", history)
    assert (code, err) == (1, f"error: '{history}' is there already and is no report of this program; name another file\n")


def test_bad_flags_are_refused(history, tmp_path, server):
    assert run("ui", "--history", tmp_path / "none.db")[0] == 1
    assert run("ui", "--history", history, "--http", "nonsense")[2] == (
        "error: --http nonsense is not understood; write it as HOST:PORT, for example 127.0.0.1:9190\n")
    assert run("ui", "--history", history, "--http", "0.0.0.0:0")[2] == (
        "error: --http 0.0.0.0:0 would show the history to every host that can reach it; give --tokens with a file of tokens, or an "
        "address of this host alone such as 127.0.0.1:8085\n")
    taken = server.url.split("/")[2]
    assert run("ui", "--history", history, "--http", taken)[2] == (
        f"error: cannot serve the page at --http {taken}: the port is in use or the address is not of this host\n")


def tokens_of(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("reader aaaaaaaaaaaaaaaaaaaaaaaa alice\nworker bbbbbbbbbbbbbbbbbbbbbbbb rack\n")
    path.chmod(0o600)
    return path


def test_tokens_are_asked_for(history, tmp_path):
    tokens = tokens_of(tmp_path)
    assert "plain text" in run("ui", "--history", history, "--http", "0.0.0.0:0", "--tokens", tokens)[2]
    server = Server("ui", "--history", history, "--http", "0.0.0.0:0", "--tokens", tokens, "--insecure")
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    try:
        assert server.get("")[0] == 200 and server.get("main.js")[0] == 200
        for path in ["api/history", "api/records/1", "api/events?after=1"]:
            status, headers, text = server.get(path)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), path
            assert "no token came" in json.loads(text)["error"]
            assert server.get(path, Authorization="Bearer wrongwrongwrongwrong")[0] == 401
            assert server.get(path, Authorization="Bearer " + "b" * 24)[0] == 403
        assert server.get("api/history", Authorization="Bearer " + "a" * 24)[0] == 200
        assert server.get("api/history", Authorization="Bearer " + "a" * 24, Host="build-17.example")[0] == 200
    finally:
        server.stop()


def https(server, path, certificates=None, peer="client"):
    context = ssl.create_default_context(cafile=certificates and certificates / "ca.crt")
    context.check_hostname = False
    if certificates:
        context.load_cert_chain(certificates / f"{peer}.crt", certificates / f"{peer}.key")
    else:
        context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(server.url.split("/")[2], context=context, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_certificates_are_asked_for(history, tmp_path, certificates):
    server = Server("ui", "--history", history, "--http", "127.0.0.1:0", "--tls-cert", certificates / "service.crt", "--tls-key",
                    certificates / "service.key", "--tls-ca", certificates / "ca.crt")
    try:
        assert server.url.startswith("https://")
        assert https(server, "/api/history", certificates)[0] == 200
        status, text = https(server, "/api/history", certificates, "worker")
        assert (status, json.loads(text)["error"]) == (
            403, "the browser's certificate has the role worker, and the page is for the role client or service: make one of that role "
            "with deploy/make-certs.sh")
        try:
            https(server, "/api/history")
            raise AssertionError("a browser without a certificate came in")
        except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected, socket.timeout):
            pass
    finally:
        server.stop()


def served_certificate(server):
    return ssl.get_server_certificate(tuple(server.url.split("/")[2].split(":")))


def test_certificates_that_change_are_shown_without_a_restart(history, tmp_path, certificates):
    own = tmp_path / "certs"
    shutil.copytree(certificates, own)
    server = Server("ui", "--history", history, "--http", "127.0.0.1:0", "--tls-cert", own / "service.crt", "--tls-key", own / "service.key",
                    "--tls-ca", own / "ca.crt")
    try:
        before = served_certificate(server)
        subprocess.run(["bash", os.environ["DIAPASON_MAKE_CERTS"], own, "service"], check=True, capture_output=True, timeout=60)
        until = time.monotonic() + 20
        while served_certificate(server) == before:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert https(server, "/api/history", own)[0] == 200
    finally:
        server.stop()


def test_a_service_logs_whom_it_refuses(tmp_path):
    server = Server("serve", "--listen", "127.0.0.1:0", "--history", tmp_path / "h.db", "--http", "127.0.0.1:0", "--tokens", tokens_of(tmp_path))
    assert server.get("api/jobs")[0] == 401
    assert server.get("api/jobs", Authorization="Bearer " + "a" * 24)[0] == 200
    assert server.get("api/jobs", Authorization="Bearer wrongwrongwrongwrong")[0] == 401
    server.process.terminate()
    log = server.process.communicate(timeout=20)[1]
    assert re.search(r'warning page_refused peer=127.0.0.1 why="no token came with the call: give one with --token-file" more=0', log), log
    assert "aaaaaaaa" not in log and "wrongwrong" not in log


# Of the page alone: tables, whose rows others name by their index, and what a document wraps.
OWN_TYPES = {"workload": "number", "job": "object", "errors": "array of object", "sketches": "array of string", "runs": "array of object"}


def expect_types_of_schemas(documents):
    """Fields of the page's documents have the types that docs/schema gives to fields of these names. (Trials are columns of values.)"""
    documents["history"] = {name: value for name, value in documents["history"].items() if name != "trials"}
    known, wrong, seen = field_types.types(), [], 0
    for name, kind, where in itertools.chain.from_iterable(field_types.found_in(document, path) for path, document in documents.items()):
        seen += name in known
        if name in known and kind not in known[name] and kind != OWN_TYPES.get(name):
            wrong.append(f"{where} is {kind}, but {known[name]}")
    assert not wrong, "\n".join(wrong)
    assert seen > 100


def test_a_service_shows_its_jobs_and_its_fleet(tmp_path):
    server = Server("serve", "--listen", "127.0.0.1:0", "--history", tmp_path / "h.db", "--http", "127.0.0.1:0", "--log-level", "error")
    worker = subprocess.Popen([PROGRAM, "worker", "--tracker", server.service, "--devices", "cpu", "--log-level", "error"],
                              stdout=subprocess.DEVNULL)
    try:
        assert server.json("api/history")["has_jobs"]
        assert server.json("api/jobs") == {"schema": "diapason.page.jobs/2", "jobs": []}
        code, _, err = run("submit", "gemm", "--m", 32, "--n", 48, "--k", 64, "--target", "cpu", "--trials", 6, "--min-repeat-ms", 1,
                           "--no-check", "--service", server.service, "--wait")
        assert code == 0, err
        job, = server.json("api/jobs")["jobs"]
        assert (job["state"], job["trials"], job["model"]) == ("done", 6, "gemm")
        assert RFC3339.fullmatch(job["submitted_at"]) and RFC3339.fullmatch(job["ended_at"])
        detail = server.json("api/jobs/1")
        assert detail["schema"] == "diapason.page.job/2" and detail["job"]["tasks"][0]["trials"] == 6
        assert server.get("api/jobs/77")[0] == 404
        fleet = server.json("api/fleet")
        assert fleet["schema"] == "diapason.page.fleet/2"
        assert [device["state"] for device in fleet["fleet"]["devices"]] == ["ready"]
        found = server.json("api/history")
        assert found["total_trials"] == 6
        record = server.json(f"api/records/{found['trials']['record'][0]}")
        expect_types_of_schemas({"history": found, "record": record, "jobs": server.json("api/jobs"), "job": detail, "fleet": fleet})
        events = dict(read_events(server, server.json("api/history")["version"], 2))
        assert events["jobs"]["jobs"][0]["state"] == "done" and events["fleet"]["fleet"]["devices"]
    finally:
        worker.terminate()
        worker.wait(20)
        assert server.stop() == 0
