"""The folder of packages that torch.compile uses, and its options. Neither needs PyTorch."""

import os
import pathlib
import subprocess
import sys
import threading

import diapason as dp
import pytest
from diapason.package_cache import PackageCache, default_folder
from diapason.torch_options import parse


def writer(text, size=0):
    def write(folder):
        os.mkdir(folder)
        pathlib.Path(folder, "manifest.json").write_text(text)
        pathlib.Path(folder, "weights.bin").write_bytes(bytes(size))

    return write


def never(folder):
    raise AssertionError("it was there")


@pytest.fixture
def cache(tmp_path):
    return PackageCache(str(tmp_path / "cache"), 2**30)


def test_a_package_is_made_once(cache):
    assert cache.find("a") is None
    path = cache.get("a", writer("one"))
    assert pathlib.Path(path, "manifest.json").read_text() == "one"
    assert cache.get("a", never) == cache.find("a") == path
    assert PackageCache(cache.folder, 2**30).get("a", never) == path
    cache.remove("a")
    assert cache.find("a") is None
    cache.remove("a")


def test_a_package_that_could_not_be_made_leaves_nothing(cache):
    def fail(folder):
        writer("half")(folder)
        raise FileNotFoundError("no compiler")

    with pytest.raises(FileNotFoundError, match="no compiler"):
        cache.get("a", fail)
    assert [str(path) for path in pathlib.Path(cache.folder).rglob("*") if not path.is_dir()] == []
    assert cache.get("a", writer("two"))


def test_threads_and_processes_make_a_package_once(cache):
    code = ("import os, sys, time\n"
            "from diapason.package_cache import PackageCache\n"
            "def make(folder):\n"
            "    os.mkdir(folder)\n"
            "    time.sleep(0.3)\n"
            "    print('made', flush=True)\n"
            "PackageCache(sys.argv[1], 2**30).get('a', make)\n")
    processes = [subprocess.Popen([sys.executable, "-c", code, cache.folder], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    made = []

    def make(folder):
        writer("x")(folder)
        made.append("made\n")

    threads = [threading.Thread(target=cache.get, args=("a", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert "".join(outputs + made) == "made\n"
    assert os.listdir(pathlib.Path(cache.folder, "locks")) == []


def test_what_was_used_last_is_kept(tmp_path):
    cache = PackageCache(str(tmp_path), 250)
    for number, key in enumerate("abc"):
        path = cache.get(key, writer("", 90))
        os.utime(path, (1000 + number, 1000 + number))
    assert cache.find("a") is None and cache.find("b")  # used now, after c
    cache.get("d", writer("", 90))
    assert [key for key in "abcd" if cache.find(key)] == ["b", "d"]
    cache.get("e", writer("", 1000))  # larger than all that is allowed, but wanted now
    assert [key for key in "bde" if cache.find(key)] == ["e"]
    assert os.listdir(tmp_path / "packages") == ["e"]


def test_what_a_process_left_that_died_is_removed_after_a_day(cache):
    packages = pathlib.Path(cache.folder, "packages")
    for name in (".tmp-old", ".tmp-new"):
        (packages / name).mkdir()
    os.utime(packages / ".tmp-old", (1000, 1000))
    cache.get("a", writer(""))
    assert sorted(os.listdir(packages)) == [".tmp-new", "a"]


def test_refusals_are_kept_for_a_week(cache):
    assert cache.refusal("a") is None
    cache.refuse("a", {"3": "it is unknown"})
    assert PackageCache(cache.folder, 1).refusal("a") == {"3": "it is unknown"}
    path = pathlib.Path(cache.folder, "refused", "a")
    os.utime(path, (path.stat().st_mtime - 8 * 24 * 3600,) * 2)
    assert cache.refusal("a") is None
    assert not path.exists()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(dp.Error) as caught:
        PackageCache(str(folder), 1)
    assert caught.value.code == "FAILED_PRECONDITION"
    assert str(caught.value) == (f"the cache folder '{folder}' is not yours alone to write to, and packages are native code; run 'chmod go-w {folder}', or "
                                 "name another one (options={'cache': ...} or DIAPASON_CACHE)")
    (tmp_path / "file").write_text("")
    with pytest.raises(dp.UnavailableError, match=r"^the cache folder '.*/file' cannot be used \((File exists|Not a directory)\); name another one "):
        PackageCache(str(tmp_path / "file"), 1)


def test_the_default_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("DIAPASON_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_folder() == "/home/me/.cache/diapason"
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert default_folder() == "/scratch/diapason"
    monkeypatch.setenv("DIAPASON_CACHE", "/packages")
    assert default_folder() == "/packages"


def test_options_of_torch_compile(tmp_path, monkeypatch):
    assert parse(None) == parse({}) == dp.CompileOptions()
    assert not parse({}).tunes and parse({"trials": 3}).tunes and parse({"seconds": 0.5}).tunes
    monkeypatch.chdir(tmp_path)
    given = parse({"trials": 10, "seconds": 2, "history": "h.db", "target": "cpu -num-cores=2", "freeze": False, "cache": None, "sizes": 3}, name="net")
    assert given == dp.CompileOptions(trials=10, seconds=2.0, history=str(tmp_path / "h.db"), target="cpu -num-cores=2", freeze=False, sizes=3, name="net")


@pytest.mark.parametrize("options, text", [
    ({"trial": 3}, "options: there is no option 'trial'; these are there: trials, seconds, history, service, target, cache, cache_gib, sizes, freeze, name"),
    ({"trials": 0}, "options: trials is 0; give a whole number above 0"),
    ({"trials": 2.5}, "options: trials is 2.5; give a whole number above 0"),
    ({"seconds": True}, "options: seconds is True; give a number above 0"),
    ({"seconds": float("nan")}, "options: seconds is nan; give a number above 0"),
    ({"history": 3}, "options: history is 3; give a path"),
    ({"target": "tpu"}, "options: target is 'tpu'; give 'cpu' or 'cuda', with attributes as in 'cpu -num-cores=4'"),
    ({"freeze": 1}, "options: freeze is 1; give True or False"),
    ({"name": ""}, "options: name is ''; give a text"),
    ({"service": 3}, "options: service is 3; give 'host:port', or a diapason.Service with its certificates and tokens"),
    ({"service": "host:1", "history": "h.db"}, "options: history and service are given; records are those of a file or those of a service: give one of them"),
])
def test_wrong_options_are_errors(options, text):
    with pytest.raises(dp.InvalidArgumentError) as caught:
        parse(options)
    assert str(caught.value) == text


def test_modes_of_inductor_are_errors():
    with pytest.raises(ValueError, match=r"^mode is 'max-autotune', which is an option of Inductor; give options=\{'trials': \.\.\.\} or "):
        parse(None, mode="max-autotune")
