import pathlib
import struct
import tempfile
import unittest

from gpu_table import npy


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


if __name__ == "__main__":
    unittest.main()
