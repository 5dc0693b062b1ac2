"""The parts of bench/random_models that need no package: shapes that fit, what becomes of a model whose commands end in each way, and smaller models."""
import json
import math
import pathlib
import random
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/random_models"))
import reduce  # noqa: E402
import replay  # noqa: E402
import shapes  # noqa: E402
import verdict  # noqa: E402
from verdict import Verdict  # noqa: E402

ROUNDS = 2000


def broadcast(a, b):
    """Their common shape; None where there is none."""
    width = max(len(a), len(b))
    pairs = zip((1,) * (width - len(a)) + tuple(a), (1,) * (width - len(b)) + tuple(b))
    return None if any(x != y and 1 not in (x, y) for x, y in pairs) else True


class ShapesTest(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(1)

    def test_shapes_have_every_rank_and_stay_small(self):
        made = [shapes.shape(self.random) for _ in range(ROUNDS)]
        self.assertEqual({len(s) for s in made}, set(range(6)))
        self.assertTrue(all(0 < math.prod(s) <= shapes.ELEMENTS for s in made))
        self.assertTrue(all(len(shapes.shape(self.random, 3)) == 3 for _ in range(20)))
        self.assertTrue(all(min(shapes.shape(self.random, 2, 100, 2)) >= 2 for _ in range(200)))

    def test_partners_broadcast(self):
        larger = 0
        for _ in range(ROUNDS):
            one = shapes.shape(self.random)
            other = shapes.partner(self.random, one)
            self.assertTrue(broadcast(one, other), (one, other))
            larger += math.prod(other) > math.prod(one)
        self.assertGreater(larger, 0)

    def test_reshaped_ones_have_as_many_elements(self):
        for _ in range(ROUNDS):
            one = shapes.shape(self.random)
            self.assertEqual(math.prod(shapes.reshaped(self.random, one)), math.prod(one))

    def test_axes_are_named_once(self):
        seen_negative = False
        for _ in range(ROUNDS):
            chosen = shapes.axes(self.random, 4)
            self.assertGreaterEqual(len(chosen), 1)
            self.assertEqual(len({a % 4 for a in chosen}), len(chosen))
            self.assertTrue(all(-4 <= a < 4 for a in chosen))
            seen_negative |= any(a < 0 for a in chosen)
        self.assertTrue(seen_negative)

    def test_slices_are_not_empty(self):
        backward = 0
        for _ in range(ROUNDS):
            extent = self.random.randint(1, 9)
            start, end, step = shapes.slices(self.random, extent)
            # As Python slices, where the end -1 - extent and below is before the first element.
            last = None if step < 0 and end < -extent else end
            self.assertTrue(list(range(extent))[start:last:step], (extent, start, end, step))
            backward += step < 0
        self.assertGreater(backward, 0)

    def test_windows_fit(self):
        for _ in range(ROUNDS):
            extent = self.random.randint(1, 9)
            kernel, stride, dilation, before, after = shapes.windows(self.random, extent)
            self.assertLessEqual((kernel - 1) * dilation + 1, extent + before + after)
            self.assertTrue(before < kernel and after < kernel and stride >= 1)


class VerdictTest(unittest.TestCase):
    def test_success_says_nothing(self):
        self.assertIsNone(verdict.of_command("build", 0, "warning: slow"))

    def test_an_error_is_a_refusal_with_its_sentence(self):
        said = verdict.of_command("build", 1, "reading...\nerror: cannot import 'm': node 'n' is unknown\nhint\n")
        self.assertEqual(said, Verdict("refused", "build", "error: cannot import 'm': node 'n' is unknown"))

    def test_signals_and_broken_invariants_are_crashes(self):
        self.assertEqual(verdict.of_command("run", -11, ""), Verdict("crashed", "run", "exit -11: "))
        self.assertEqual(verdict.of_command("run", 134, "a\nb"), Verdict("crashed", "run", "exit 134: b"))
        self.assertEqual(verdict.of_command("build", 1, "x.cc:7: check failed: a > b\nerror: the process ended"),
                         Verdict("crashed", "build", "x.cc:7: check failed: a > b"))

    def test_the_table_counts_all_and_lists_the_worst_first(self):
        lines = verdict.table({"1": Verdict("right"), "2": Verdict("refused", "build", "error: a|b"), "3": Verdict("wrong", "compare", "off"), "4": Verdict("right")})
        self.assertEqual(lines, ["2 right, 1 refused, 1 wrong", "", "| model | result | step | what was said |", "|---|---|---|---|",
                                 "| 3 | wrong | compare | off |", "| 2 | refused | build | error: a/b |"])
        self.assertEqual(verdict.table({}), ["no models", ""])


class ReplayTest(unittest.TestCase):
    """The program is a fake: a script that answers each command as CASE says."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.home = pathlib.Path(scratch.name)
        self.flags = types.SimpleNamespace(program=self.home / "program", target="opencl", seconds=0, limit=60)
        self.case = self.home / "cases/7"
        self.case.mkdir(parents=True)
        (self.case / "case.json").write_text(json.dumps({"inputs": {"x": "inputs_x.npy"}, "outputs": {"y": "outputs_y.npy"}, "tolerance": 0.001}))

    def program(self, text):
        self.flags.program.write_text(f"#!/bin/sh\necho \"$@\" >> {self.home}/said\n{text}\n")
        self.flags.program.chmod(0o755)

    def test_each_step_gets_what_it_needs(self):
        self.program("")
        self.assertEqual(replay.try_case(self.case, self.flags), Verdict("right"))
        self.flags.seconds = 2
        self.assertEqual(replay.try_case(self.case, self.flags), Verdict("right"))
        c = self.case
        build = f"build {c}/model.onnx --target opencl --out {c}/package --no-measure --no-check"
        run = f"run {c}/package --tolerance 0.001 --input x={c}/inputs_x.npy --compare y={c}/outputs_y.npy"
        tune = f"tune {c}/model.onnx --target opencl --history {c}/history.db --seconds 2"
        said = (self.home / "said").read_text().splitlines()
        self.assertEqual(said, [build, run, tune, f"{build} --history {c}/history.db", run])

    def test_outputs_that_differ_are_wrong(self):
        self.program('[ $1 = build ] || { echo "compare y FAILED: 3 of 4"; echo "error: an output is off" >&2; exit 1; }')
        self.assertEqual(replay.try_case(self.case, self.flags), Verdict("wrong", "compare", "compare y FAILED: 3 of 4"))

    def test_a_failing_step_is_named_and_ends_the_case(self):
        self.program('echo "error: no such operator" >&2; exit 1')
        self.assertEqual(replay.try_case(self.case, self.flags), Verdict("refused", "build", "error: no such operator"))
        self.assertEqual(len((self.home / "said").read_text().splitlines()), 1)
        self.program("kill -SEGV $$")
        self.assertEqual(replay.try_case(self.case, self.flags).kind, "crashed")

    def test_a_model_without_tasks_is_built_without_records(self):
        self.flags.seconds = 2
        self.program('[ $1 != tune ] || { echo "error: there is no task to tune: the network has no operator that runs" >&2; exit 1; }')
        self.assertEqual(replay.try_case(self.case, self.flags), Verdict("right"))
        self.assertEqual([line.split()[0] for line in (self.home / "said").read_text().splitlines()], ["tune", "build", "run"])

    def test_no_end_is_a_hang(self):
        self.program("exec sleep 60")
        self.flags.limit = 0.3
        self.assertEqual(replay.try_case(self.case, self.flags), Verdict("hung", "build", "no end after 0 s"))


class ReduceTest(unittest.TestCase):
    def test_the_fewest_nodes_that_fail_are_found(self):
        # Four nodes; the third fails where it is computed from the second, and where the first is given too.
        nodes = [types.SimpleNamespace(output=[name]) for name in "abcd"]
        made = types.SimpleNamespace(nodes=nodes, cut=lambda wanted, given: (wanted, given))
        tried = []

        def attempt(cut):
            tried.append(cut)
            wanted, given = cut
            return Verdict("wrong" if wanted in ({"c"}, {"d"}) and "b" not in given else "right")

        said, count = reduce.reduced(made, Verdict("wrong"), attempt)
        self.assertEqual((said, count), (Verdict("wrong"), 2))
        self.assertEqual(tried[-1], ({"c"}, {"a"}))  # its files are there

    def test_a_failure_of_several_outputs_together_stays_whole(self):
        made = types.SimpleNamespace(nodes=[types.SimpleNamespace(output=["a"])], cut=lambda wanted, given: None)
        self.assertEqual(reduce.reduced(made, Verdict("wrong"), lambda cut: Verdict("right")), (Verdict("wrong"), 1))


if __name__ == "__main__":
    unittest.main()
