"""Where tune and build tell how far they are: a terminal, a notebook (a fake of IPython's display), or nowhere."""

import io
import re
import sys
import types

import diapason as dp
import pytest
from diapason import progress_line as module
from diapason.progress_line import progress_line

CPU = "cpu -num-cores=1"
GEMM = {"options": {"m": 32, "n": 48, "k": 64}}


class Kernel:
    """IPython as a kernel of Jupyter has it. `cells` has what each display shows, `messages` how often one was sent."""

    def __init__(self, monkeypatch, kernel=object()):
        self.cells, self.messages = [], 0
        shell = types.SimpleNamespace(kernel=kernel)
        ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        ipython.get_ipython, display.display = lambda: shell, self.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, content, raw=False, display_id=None):
        assert raw and display_id is True and set(content) == {"text/plain"}
        self.cells.append(content["text/plain"])
        self.messages += 1
        return types.SimpleNamespace(update=lambda content, raw, cell=len(self.cells) - 1: self.update(cell, content, raw))

    def update(self, cell, content, raw):
        assert raw
        self.cells[cell] = content["text/plain"]
        self.messages += 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_notebook_updates_one_display(monkeypatch, clock, capfd):
    kernel = Kernel(monkeypatch)
    with progress_line(None) as line:
        assert line.is_shown
        for second in range(3):
            clock[0] = 100 + second
            line.show(f"{second} trials")
            assert kernel.cells == [f"{second} trials"]
    assert (kernel.cells, kernel.messages) == (["2 trials"], 3)
    assert capfd.readouterr() == ("", "")


def test_a_notebook_gets_no_more_messages_than_can_be_read(monkeypatch, clock):
    kernel = Kernel(monkeypatch)
    with progress_line(None) as line:
        for step in range(100):
            clock[0] = 100 + step / 100
            line.show(f"{step} trials")
        assert kernel.cells == ["75 trials"] and kernel.messages == 4
    assert kernel.cells == ["99 trials"] and kernel.messages == 5


def test_a_notebook_in_which_nothing_happened_shows_nothing(monkeypatch):
    kernel = Kernel(monkeypatch)
    with progress_line(None):
        pass
    assert kernel.cells == []


def test_each_call_has_a_display_of_its_own(monkeypatch):
    kernel = Kernel(monkeypatch)
    for name in ("one", "other"):
        with progress_line(True) as line:
            line.show(name)
    assert kernel.cells == ["one", "other"]


def test_it_may_be_left_out_of_a_notebook(monkeypatch):
    kernel = Kernel(monkeypatch)
    with progress_line(False) as line:
        assert not line.is_shown
        line.show("1 trial")
    assert kernel.cells == []


def test_ipython_in_a_terminal_is_a_terminal(monkeypatch):
    kernel = Kernel(monkeypatch, kernel=None)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_line(None) as line:
        line.show("1 trial")
    assert kernel.cells == [] and sys.stderr.getvalue() == "\r\x1b[K1 trial\n"


def test_a_line_of_a_terminal_is_replaced_and_stays(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_line(None) as line:
        line.show("1 trial")
        line.show("2 trials")
    assert sys.stderr.getvalue() == "\r\x1b[K1 trial\r\x1b[K2 trials\n"


def test_a_warning_does_not_stand_behind_the_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(module, "_warn", lambda sentence: sys.stderr.write(f"warning: {sentence}\n"))
    with progress_line(None) as line:
        line.show("1 trial")
        line.warn("the machine is busy")
        line.show("2 trials")
    assert sys.stderr.getvalue() == "\r\x1b[K1 trial\r\x1b[Kwarning: the machine is busy\n\r\x1b[K2 trials\n"


def test_what_is_no_terminal_gets_no_line_unless_asked_for(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for wanted, text in ((None, ""), (False, ""), (True, "\r\x1b[K1 trial\n")):
        with progress_line(wanted) as line:
            assert line.is_shown == (wanted is True)
            line.show("1 trial")
        assert sys.stderr.getvalue() == text


def test_tune_and_build_tell_a_notebook_how_far_they_are(monkeypatch, tmp_path):
    kernel = Kernel(monkeypatch)
    history = tmp_path / "h.db"
    dp.tune("gemm", CPU, history=history, trials=3, check=False, min_repeat_ms=1, **GEMM)
    (tuned,) = kernel.cells
    assert tuned.startswith("tuning: 3/3 trials in ") and "1 of 1 tasks timed, estimate " in tuned
    dp.build("gemm", CPU, history=history, out=tmp_path / "package", **GEMM)
    assert re.fullmatch(rf"built {re.escape(str(tmp_path / 'package'))} in [0-9.]+ s", kernel.cells[1]) and kernel.cells[0] == tuned and len(kernel.cells) == 2


def test_build_tells_each_step(monkeypatch, tmp_path, model):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.warns(dp.DiapasonWarning, match="fallback schedule"):
        dp.build(model, CPU, out=tmp_path / "package", dims={"batch": [1, 4]}, shipped_records=False)
    *steps, last = [step for step in sys.stderr.getvalue().strip("\n").split("\r\x1b[K") if step]
    assert steps == ["building: reading the model", "building: compiling and checking 2 tasks of plan 1 of 2",
                     "building: compiling and checking 2 tasks of plan 2 of 2", "building: writing the package"]
    assert re.fullmatch(rf"built {re.escape(str(tmp_path / 'package'))} in [0-9.]+ s", last)
