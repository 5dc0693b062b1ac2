"""Arrays of float32 as .npy files, without NumPy."""
import array
import ast
import math


def write(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header = header.ljust(117) + "\n"
    while (len(header) + 10) % 64:
        header = header[:-1] + " \n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("latin-1"))
        file.write(array.array("f", values).tobytes())


def read(path):
    """Shape and values. ValueError for anything else than float32 in C order, version 1 of the format."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{path} is no .npy file of version 1")
    end = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:end].decode("latin-1"))
    if header["descr"] != "<f4" or header["fortran_order"]:
        raise ValueError(f"{path} holds {header['descr']}, not float32 in C order")
    values = array.array("f", data[end:])
    if len(values) != math.prod(header["shape"]):
        raise ValueError(f"{path} is cut off")
    return list(header["shape"]), values
