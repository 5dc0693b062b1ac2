"""torch.compile(backend="diapason") against eager mode.

The ctest python.torch_compile makes an environment with PyTorch for them (tests/python/torch_tests.sh). In another one, with torch, torchvision,
transformers, onnx, onnxscript, numpy, pandas and pytest:

    PYTHONPATH=build/python DIAPASON_PROGRAM=build/bin/diapason VENV/bin/python -m pytest tests/python/test_torch_compile.py
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading

import diapason as dp
import pytest
from diapason import _runtime

torch = pytest.importorskip("torch", reason="PyTorch is not installed; the first lines of this file say how to run these tests")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which PyTorch exports with")

CPU = "cpu -num-cores=1"


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache") / "diapason")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    dp.explain_fallbacks(clear=True)
    torch.manual_seed(1)
    torch.set_num_threads(1)


@pytest.fixture
def compiled(cache):
    def compiled(model, dynamic=None, **options):
        return torch.compile(model, backend="diapason", dynamic=dynamic, options={"target": CPU, "cache": cache, **options})

    return compiled


def packages_in(cache):
    return sorted(path.name for path in pathlib.Path(cache, "packages").glob("[!.]*"))


def reasons():
    return [str(fallback) for fallback in dp.explain_fallbacks()]


class Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def check(model, run, *args, **kwargs):
    """The compiled model returns what the model returns, twice."""
    with torch.no_grad():
        wanted = model(*args, **kwargs)
        for _ in range(2):
            got = run(*args, **kwargs)
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    return got


# ---- What goes through ----


def test_the_backend_is_found_by_its_name():
    assert "diapason" in torch._dynamo.list_backends()


def test_a_supported_model_runs_as_one_package(compiled, cache):
    before = packages_in(cache)
    model = Dense().eval()
    check(model, compiled(model), torch.randn(3, 8))
    assert reasons() == []
    assert len(packages_in(cache)) == len(before) + 1


def test_unsupported_nodes_split_the_graph(compiled):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = Dense(), torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.softmax(self.after(torch.complex(self.before(x), self.before(x)).abs()), -1)

    model = Model().eval()
    check(model, compiled(model), torch.randn(3, 8))
    found = dp.explain_fallbacks()
    assert [fallback.operator for fallback in found] == ["aten.complex.default", "aten.abs.default"]
    assert str(found[0]) == ("aten.complex.default (node complex_1) runs in eager mode: its result is of type complex64; bfloat16, bool, float16, "
                             "float32, int32, int64, int8, uint8 are supported")


def test_what_cannot_be_exported_is_left_out(compiled, cache):
    def function(x):
        return torch.histc(torch.relu(x @ x + 1)) * 2 + 1

    check(function, compiled(function), torch.randn(6, 6))
    found = reasons()
    assert found[0].startswith("aten.histc.default (node histc) runs in eager mode: PyTorch cannot export it to ONNX (")
    made = packages_in(cache)
    torch._dynamo.reset()
    dp.explain_fallbacks(clear=True)
    check(function, compiled(function), torch.randn(6, 6))
    assert reasons() == found and packages_in(cache) == made


def test_a_second_process_finds_the_package(cache):
    code = ("import sys, torch, diapason as dp\n"
            "torch.manual_seed(3)\n"
            "model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.ReLU()).eval()\n"
            "run = torch.compile(model, backend='diapason', options={'cache': sys.argv[1], 'target': 'cpu -num-cores=1', 'trials': 2})\n"
            "with torch.no_grad():\n"
            "    assert torch.allclose(run(torch.ones(2, 6)), model(torch.ones(2, 6)), atol=1e-5)\n"
            "assert not dp.explain_fallbacks(), dp.explain_fallbacks()\n"
            "print(dp.History(sys.argv[1] + '/history.db').summary().record_count)\n")
    before = packages_in(cache)
    # Two at once, then one more: the package is made once, and the third measures nothing.
    both = [subprocess.Popen([sys.executable, "-c", code, cache], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.wait(timeout=200) for process in both] == [0, 0]
    records = both[0].communicate()[0]
    assert int(records) >= 2 and both[1].communicate()[0] == records
    made = packages_in(cache)
    assert len(made) == len(before) + 1
    done = subprocess.run([sys.executable, "-c", code, cache], stdout=subprocess.PIPE, text=True, timeout=200)
    assert done.returncode == 0 and done.stdout == records
    assert packages_in(cache) == made


def test_the_history_of_an_earlier_run_is_used(compiled, tmp_path):
    model = Dense().eval()
    history = tmp_path / "h.db"
    check(model, compiled(model, trials=2, history=history), torch.randn(5, 8))
    summary = dp.History(history).summary()
    assert summary.record_count >= 2 and summary.networks[0].startswith("torch-")
    torch._dynamo.reset()
    check(model, compiled(model, history=history), torch.randn(5, 8))
    assert dp.History(history).summary().record_count == summary.record_count


def test_a_history_that_is_not_there_is_warned_of(compiled, tmp_path):
    model, history = Dense().eval(), str(tmp_path / "none.db")
    with pytest.warns(dp.DiapasonWarning) as caught:
        check(model, compiled(model, history=history), torch.randn(4, 8))
    assert str(caught[0].message) == (f"there is no history {history}, so schedules are those that come with Diapason; options={{'trials': ...}} makes one")
    assert caught[0].filename == __file__  # where the model is called, not where it is compiled
    assert reasons() == [] and not os.path.exists(history)


def test_an_exported_program_is_a_model(tmp_path, capfd):
    model, x = Dense().eval(), torch.randn(3, 8)
    program = torch.export.export(model, (x,))
    built = dp.build(program, CPU, out=tmp_path / "package", name="dense", check=False, measure=False, progress=False)
    assert capfd.readouterr() == ("", "")  # the exporter tells steps
    package = dp.load(built.out)
    assert package.network == "dense"
    torch.testing.assert_close(package(x), model(x).detach(), rtol=1e-3, atol=1e-5)


def test_a_service_tunes_and_has_the_records(compiled, cache, address):
    model, before = Dense().eval(), len(packages_in(cache))
    check(model, compiled(model, service=address, trials=2), torch.randn(7, 8))
    service = dp.Service(address)
    job = service.jobs()[0]
    assert (job.state, job.target, job.measured >= 2) == ("done", CPU, True)
    torch._dynamo.reset()
    check(model, compiled(model, service=service), torch.randn(7, 8))  # another package: of the records that there are now
    assert len(service.jobs()) == 1 and len(packages_in(cache)) == before + 2
    assert reasons() == []


def test_a_service_that_does_not_answer_leaves_the_model_with_pytorch(compiled):
    model = Dense().eval()
    check(model, compiled(model, service=dp.Service("127.0.0.1:1", timeout=0.5), trials=2), torch.randn(7, 8))
    (reason,) = reasons()
    assert "the service at '127.0.0.1:1' does not answer" in reason


# ---- Results that must be right ----


def test_inputs_of_any_layout_and_type(compiled):
    def function(x, i):
        return torch.relu(x @ x.transpose(-1, -2)) + i.to(torch.float32), i * 2 + 1

    x, i = torch.randn(6, 4), torch.arange(36).reshape(6, 6)
    run = compiled(function)
    check(function, run, x, i)
    check(function, run, torch.randn(4, 6).T, i.T)
    check(function, run, torch.randn(7, 4)[1:], i)  # not aligned to more than a row
    check(function, run, torch.randn(25)[1:].reshape(6, 4), i)
    check(function, run, torch.randn(6, 8)[:, ::2], i)


def test_results_keep_the_layout_of_eager_mode(compiled):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval().to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    got = check(model, compiled(model), x)
    with torch.no_grad():
        assert got.stride() == model(x).stride()


def test_results_that_are_views_of_inputs_or_of_each_other_stay_so(compiled):
    def function(x):
        y = torch.relu(x @ x) + 1
        return x.T, y, y[0], None, 3, x.shape[0]

    x = torch.randn(4, 4)
    with torch.no_grad():
        view, y, row, nothing, three, extent = compiled(function)(x)
        x[0, 1] = 17
        y[0, 2] = 18
    assert view[1, 0] == 17 and row[2] == 18 and (nothing, three, extent) == (None, 3, 4)


def test_buffers_that_a_model_writes_to_change(compiled):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = Dense()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            y = self.dense(x)
            self.seen += y.sum(0)
            return y * self.seen

    one, other = Counting().eval(), Counting().eval()
    other.load_state_dict(one.state_dict())
    run = compiled(other)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 8)
            torch.testing.assert_close(run(x), one(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other.seen, one.seen, rtol=1e-4, atol=1e-5)
    assert reasons() == []


def test_inputs_that_a_function_writes_to_change(compiled):
    def function(x):
        x.add_(1)
        return torch.relu(x @ x)

    with torch.no_grad():
        x, y = torch.ones(4, 4), torch.ones(4, 4)
        torch.testing.assert_close(compiled(function)(x), function(y))
    torch.testing.assert_close(x, y)


def test_changed_weights_are_seen(compiled):
    model = Dense().eval()
    run, x = compiled(model), torch.randn(2, 8)
    check(model, run, x)
    model.load_state_dict(Dense().state_dict())
    check(model, run, x)
    model.first.weight.data = torch.randn(16, 8)
    check(model, run, x)
    for value in (1.0, 2.0):
        with torch.no_grad():
            model.second.bias.fill_(value)
        check(model, run, x)
    assert reasons() == ["a graph runs in eager mode: its weights have changed 4 times between calls; with options={'freeze': False} they are inputs of "
                         "the package, and may change"]


def test_weights_cannot_be_exchanged_behind_its_back(compiled):
    model = Dense().eval()
    run, x = compiled(model), torch.randn(2, 8)
    check(model, run, x)
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(model.first.weight, torch.nn.Parameter(torch.randn(16, 8)))
    check(model, run, x)
    model.first.weight = torch.nn.Parameter(torch.randn(16, 8))
    check(model, run, x)


def test_changes_of_weights_are_looked_at_by_functions_of_pytorch():
    one, other = torch.zeros(2), torch.zeros(2)
    watch = _runtime.Watch((one, other), [1])
    assert watch.quick
    assert watch.unchanged((other, other)) and not watch.unchanged((other, one))
    other.add_(1)
    assert not watch.unchanged((one, other))


def test_weights_that_are_inputs_may_change_unseen(compiled):
    model = Dense().eval()
    run, x = compiled(model, freeze=False), torch.randn(2, 8)
    check(model, run, x)
    model.first.weight.data.mul_(2)  # which PyTorch does not count
    check(model, run, x)
    assert reasons() == []


def test_weights_that_are_inputs_are_read_where_they_are(tmp_path):
    """64 MB of weights take no memory beside PyTorch's."""
    code = ("import sys, torch, diapason as dp\n"
            "model = torch.nn.ParameterDict({'w': torch.nn.Parameter(torch.randn(4096, 4096), requires_grad=False)})\n"
            "def call(w, x):\n"
            "    return (w + x).amax(1)\n"
            "run = torch.compile(call, backend='diapason', options={'cache': sys.argv[1], 'target': 'cpu -num-cores=1', 'freeze': False})\n"
            "resident = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n"
            "with torch.no_grad():\n"
            "    run(torch.ones(256, 256), torch.ones(1, 256))\n"
            "    torch._dynamo.reset()\n"
            "    before, x = resident(), torch.randn(1, 4096)\n"
            "    error = (run(model['w'], x) - call(model['w'], x)).abs().max()\n"
            "    print(resident() - before, error.item())\n"
            "assert not dp.explain_fallbacks(), dp.explain_fallbacks()\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"})
    assert done.returncode == 0, done.stderr
    grown, error = done.stdout.split()
    assert int(grown) < 0.5 * 64 * 2**20 and float(error) < 1e-5


def test_dynamic_sizes_become_buckets(compiled, cache):
    model = Dense().eval()
    run = compiled(model, sizes=2)
    before = len(packages_in(cache))
    for batch in (11, 12, 13, 14, 2, 1, 16):
        check(model, run, torch.randn(batch, 8))
    # Dynamo takes the first size for fixed, and 1 for another graph. The others are padded to 16.
    assert len(packages_in(cache)) == before + 3
    check(model, run, torch.randn(17, 8))  # a plan more, in a package that has both
    check(model, run, torch.randn(9, 8))
    assert len(packages_in(cache)) == before + 4 and reasons() == []
    newest = max(pathlib.Path(cache, "packages").glob("[!.]*"), key=os.path.getmtime)
    assert [list(plan.values()) for plan in dp.load(newest).plans] == [[16], [32]]
    check(model, run, torch.randn(33, 8))
    (reason,) = reasons()
    assert reason == ("a graph runs in eager mode: there are packages for 2 sizes of it already, as many as options={'sizes': 2} allows; sizes 33x8 "
                      "have none")
    assert len(packages_in(cache)) == before + 4


def test_sizes_that_cannot_be_padded_get_packages_of_their_own(compiled, cache):
    def function(x):
        return torch.softmax(x @ torch.ones(8, 4), 0) + 1  # along the size that changes

    run = compiled(function, sizes=2)
    before = len(packages_in(cache))
    for batch in (11, 12, 13, 14, 13):
        check(function, run, torch.randn(batch, 8))
    assert len(packages_in(cache)) == before + 3
    (reason,) = reasons()
    assert reason == ("a graph runs in eager mode: there are packages for 2 sizes of it already, as many as options={'sizes': 2} allows; sizes 14x8 "
                      "have none")


def test_two_dynamic_sizes_have_buckets_of_both(compiled, cache):
    def function(x):
        return torch.relu(x).sum(2).transpose(0, 1) * 2

    run = compiled(function)
    before = len(packages_in(cache))
    for shape in ((3, 5, 8), (4, 7, 8), (2, 8, 8)):
        x = torch.randn(shape)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(x, 1)
        assert check(function, run, x).stride() == function(x).stride()
    assert len(packages_in(cache)) == before + 1 and reasons() == []


def test_changed_weights_are_seen_by_buckets(compiled):
    model = Dense().eval()
    run = compiled(model, dynamic=True)
    for batch in (5, 6):
        check(model, run, torch.randn(batch, 8))
        with torch.no_grad():
            model.first.weight.mul_(2)
        check(model, run, torch.randn(batch + 2, 8))
    assert reasons() == []


def test_a_second_process_finds_the_package_of_buckets(cache):
    code = ("import sys, torch, diapason as dp\n"
            "torch.manual_seed(4)\n"
            "model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.ReLU()).eval()\n"
            "run = torch.compile(model, backend='diapason', dynamic=True, options={'cache': sys.argv[1], 'target': 'cpu -num-cores=1'})\n"
            "with torch.no_grad():\n"
            "    for batch in (3, 4, 5): assert torch.allclose(run(torch.ones(batch, 6)), model(torch.ones(batch, 6)), atol=1e-5)\n"
            "assert not dp.explain_fallbacks(), dp.explain_fallbacks()\n")
    before = len(packages_in(cache))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, cache], check=True, timeout=200)
        assert len(packages_in(cache)) == before + 2  # of 4, and of 4 and 8


def test_sizes_marked_as_dynamic(compiled):
    model = Dense().eval()
    run = compiled(model)
    for batch in (21, 22):
        x = torch.randn(batch, 8)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        check(model, run, x)
    assert reasons() == []


def test_tensors_without_elements(compiled):
    model = Dense().eval()
    check(model, compiled(model), torch.randn(0, 8))
    assert "is empty (shape [0, 8])" in reasons()[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_modules_of_other_types(compiled, dtype):
    model, x = Dense().eval().to(dtype), torch.randn(3, 8).to(dtype)
    with torch.no_grad():
        got, wanted = compiled(model)(x), model(x)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=1e-2)
    assert (reasons() == []) == (dtype != torch.float64)


def test_autocast(compiled):
    model, x = Dense().eval(), torch.randn(3, 8)
    run = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got, wanted = run(x), model(x)
    assert got.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=1e-2)
    assert reasons() == []
    check(model, run, x)


def test_inference_mode(compiled):
    model, x = Dense().eval(), torch.randn(3, 8)
    run = compiled(model)
    with torch.inference_mode():
        torch.testing.assert_close(run(x), model(x))
        made_here = Dense().eval()
        compiled_here = compiled(made_here)
        torch.testing.assert_close(compiled_here(x), made_here(x))
        made_here.first.weight.mul_(2)
        torch.testing.assert_close(compiled_here(x), made_here(x))
    assert reasons() == []


def test_training_stays_with_pytorch(compiled):
    model, x = Dense(), torch.randn(3, 8)
    run = compiled(model)
    run(x).sum().backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(got, [parameter.grad for parameter in model.parameters()])
    assert reasons() == ["a graph runs in eager mode: gradients are wanted, and only inference is compiled: call the model under torch.no_grad() or "
                         "torch.inference_mode()"]


def test_operators_that_the_exporter_does_not_know_are_written_with_others(compiled):
    def function(x):
        y = torch.relu(x)
        return y.var(1) + 1, y.std((2, 3), keepdim=True), torch.var_mean(y, correction=0), torch.nn.functional.adaptive_avg_pool2d(y, (4, 3))

    check(function, compiled(function), torch.randn(2, 3, 14, 10))
    assert reasons() == []


def test_dropout_draws_the_numbers_of_eager_mode(compiled):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8), torch.nn.ReLU())
    run, x = compiled(model), torch.randn(64, 8)
    with torch.no_grad():
        torch.manual_seed(5)
        got = run(x)
        torch.manual_seed(5)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)
    assert any("it draws random numbers" in reason for reason in reasons())


def test_threads_share_a_compiled_model(compiled):
    model = Dense().eval()
    run, wrong = compiled(model), []

    def work(seed):
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(20):
                x = torch.randn(9, 8, generator=random)
                if not torch.allclose(run(x), model(x), atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and reasons() == []


def test_a_wrong_package_is_found_and_left_out(compiled, monkeypatch):
    from diapason import torch_backend

    run_package = torch_backend._Kernel.run
    monkeypatch.setattr(torch_backend._Kernel, "run", lambda self, inputs: [result + 1 for result in run_package(self, inputs)])
    model = Dense().eval()
    check(model, compiled(model), torch.randn(17, 8))
    (reason,) = reasons()
    assert reason.startswith("a subgraph in L['self'].first (Linear) runs in eager mode: its package and PyTorch differed by 1, where the largest result is ")


# ---- Networks ----


def networks():
    path = pathlib.Path(__file__).parents[2] / "bench" / "torch_compile" / "torch_compile.py"
    spec = importlib.util.spec_from_file_location("torch_compile_networks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["resnet-18", "mobilenet-v2", "bert", "gpt-2", "vit"])
def test_networks_are_right_as_one_package(compiled, cache, name):
    pytest.importorskip("transformers" if name in ("bert", "gpt-2") else "torchvision")
    module = networks()
    before = len(packages_in(cache))
    model, args, kwargs = module.MODELS[name](True)
    run = compiled(model)
    with torch.no_grad():
        assert module.error_of(run(*args, **kwargs), model(*args, **kwargs)) < 1e-3
    assert reasons() == []
    assert len(packages_in(cache)) == before + 1


def test_gpt2_with_a_cache_generates_what_eager_mode_does(compiled):
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=32)).eval()
    run = compiled(model, sizes=2)
    ids = torch.randint(0, 100, (1, 8))
    with torch.no_grad():
        states = [(model, None, ids), (run, None, ids)]
        for _ in range(5):
            after = []
            for call, past, given in states:
                result = call(given, past_key_values=past, use_cache=True)
                after.append((call, result.past_key_values, result.logits))
            torch.testing.assert_close(after[0][2], after[1][2], rtol=1e-3, atol=1e-4)
            states = [(call, past, after[0][2][:, -1:].argmax(-1)) for call, past, _ in after]


def test_the_example_runs(cache):
    example = pathlib.Path(__file__).parents[2] / "examples" / "torch_compile.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=200, env={**os.environ, "DIAPASON_CACHE": cache})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["first", "eager"] and float(lines[0].split()[-1]) < 1e-4


# ---- Errors ----


def test_a_target_of_another_device_is_an_error(compiled):
    model = Dense().eval()
    with pytest.raises(Exception, match="options: target is 'cuda', and the tensors of the model are on cpu; move the model, or leave target out"), torch.no_grad():
        compiled(model, target="cuda")(torch.randn(3, 8))


def test_a_history_and_a_service_are_an_error(compiled):
    model = Dense().eval()
    with pytest.raises(Exception, match="options: history and service are given; "), torch.no_grad():
        compiled(model, history="h.db", service="127.0.0.1:1")(torch.randn(3, 8))
    with pytest.raises(Exception, match="options: service is 3; give 'host:port', or a diapason.Service "), torch.no_grad():
        compiled(model, service=3)(torch.randn(3, 8))


def test_weights_are_not_copied_while_the_graph_is_compiled(tmp_path):
    """Beside PyTorch's, there is one copy, in the package; 64 MB of weights may cost twice that while it is made."""
    code = ("import resource, sys, torch, diapason as dp\n"
            "model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU()).eval()\n"
            "small = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()\n"
            "run = torch.compile(lambda model, x: model(x), backend='diapason', options={'cache': sys.argv[1], 'target': 'cpu -num-cores=1'})\n"
            "resident = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n"
            "with torch.no_grad():\n"
            "    run(small, torch.ones(1, 8))\n"
            "    before = resident()\n"
            "    run(model, torch.ones(1, 4096))\n"
            "    print(resident() - before)\n"
            "assert not dp.explain_fallbacks(), dp.explain_fallbacks()\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=200,
                          env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "0"})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.5 * 64 * 2**20
