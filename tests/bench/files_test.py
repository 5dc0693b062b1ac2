import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from gpu_table import npy, onnx_file


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def inverted_residual():
    """Expand by 1x1, depthwise, project by 1x1, add; then pool and classify: MobileNet-v2 in small."""
    g = onnx_file.Graph("block")

    def conv(x, name, channels_in, channels_out, kernel, group=1):
        count = channels_out * channels_in // group * kernel * kernel
        w = g.constant(name + ".w", [channels_out, channels_in // group, kernel, kernel], floats(*([0.1, -0.2, 0.3] * count)[:count]))
        pad = kernel // 2
        x = g.add("Conv", [x, w], name + ".conv", kernel_shape=[kernel] * 2, strides=[1, 1], pads=[pad] * 4, group=group)
        statistics = [g.constant(f"{name}.{i}", [channels_out], floats(*[value] * channels_out))
                      for i, value in enumerate((1.5, 0.25, -0.5, 2.0))]
        return g.add("BatchNormalization", [x, *statistics], name, epsilon=1e-5)

    def relu6(x):
        bounds = [g.constant(f"{x}.{key}", [], floats(value)) for key, value in (("min", 0.0), ("max", 6.0))]
        return g.add("Clip", [x, *bounds], x + ".relu6")

    x = g.input("image", [1, 4, 9, 9])
    y = relu6(conv(x, "expand", 4, 12, 1))
    y = relu6(conv(y, "depthwise", 12, 12, 3, group=12))
    y = g.add("Add", [x, conv(y, "project", 12, 4, 1)], "sum")
    y = g.add("Flatten", [g.add("GlobalAveragePool", [y], "pool")], "flat", axis=1)
    constants = [g.constant("fc.w", [3, 4], floats(*range(12))), g.constant("fc.b", [3], floats(1, 2, 3))]
    g.output(g.add("Gemm", [y, *constants], "output", transB=1), [1, 3])
    return g.bytes()


class NpyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "x.npy"

    def test_what_is_written_is_read(self):
        for shape, values in (((1, 2, 2), [1.0, -2.5, 3.0, 1e-30]), ((3,), [0.0, 1.0, 2.0]), ((), [7.0])):
            npy.write(self.path, shape, values)
            read_shape, read = npy.read(self.path)
            self.assertEqual(read_shape, list(shape))
            self.assertEqual([struct.pack("<f", v) for v in read], [struct.pack("<f", v) for v in values])
            self.assertEqual(self.path.stat().st_size, 128 + 4 * len(values))  # the data begins at a multiple of 64

    def test_other_files_are_refused(self):
        npy.write(self.path, (2,), [1.0, 2.0])
        data = self.path.read_bytes()
        for damaged, text in ((data[:-4], "is cut off"), (data[:20].replace(b"NUMPY", b"NUMPI") + data[20:], "is no .npy file"),
                              (data.replace(b"<f4", b"<f8"), "holds <f8, not float32")):
            self.path.write_bytes(damaged)
            with self.assertRaisesRegex(ValueError, text):
                npy.read(self.path)


class OnnxFileTest(unittest.TestCase):
    def test_numbers_are_written_as_protobuf_has_them(self):
        self.assertEqual(onnx_file.varint(300), b"\xac\x02")
        self.assertEqual(onnx_file.varint(-1), b"\xff" * 9 + b"\x01")
        self.assertEqual(onnx_file.attribute("axis", 1), b"\x0a\x04axis\x18\x01\xa0\x01\x02")

    def test_a_block_of_mobilenet_is_imported_fused_and_computed_right(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "block.onnx"
            model.write_bytes(inverted_residual())

            def diapason(*words):
                return json.loads(subprocess.run([os.environ["DIAPASON_PROGRAM"], *map(str, words), "--json"], check=True,
                                                 capture_output=True, text=True).stdout)

            tasks = [task["name"] for task in diapason("tasks", model, "--target", "cpu")["tasks"] if task["weight"] > 0]
            self.assertEqual(tasks, ["transpose_9x9x4", "conv2d_1x1_s1_9x9x4_12_bias_clip", "depthwise_conv2d_3x3_s1_9x9x12_bias_clip",
                                     "conv2d_1x1_s1_9x9x12_4_bias_add", "global_avg_pool_9x9x4", "gemm_1x3x4_bias"])
            diapason("build", model, "--target", "cpu", "--out", pathlib.Path(folder) / "package")
            self.assertTrue(diapason("run", pathlib.Path(folder) / "package", "--check")["check"]["ok"])


if __name__ == "__main__":
    unittest.main()
