"""Writes ONNX files without the onnx package: the few messages of its protobuf that inference networks need.

Field numbers are those of onnx.proto (ModelProto, GraphProto, NodeProto, AttributeProto, TensorProto, ValueInfoProto).
"""
import struct

FLOAT, INT64 = 1, 7
IR_VERSION, OPSET = 8, 13


def varint(value):
    value &= (1 << 64) - 1  # negative numbers take ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(name, value):
    out = message(1, name)
    if isinstance(value, float):
        return out + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return out + number(3, value) + number(20, 2)
    return out + b"".join(number(8, v) for v in value) + number(20, 7)


def tensor(name, shape, data, kind=FLOAT):
    return b"".join(number(1, d) for d in shape) + number(2, kind) + message(8, name) + message(9, data)


def value_info(name, shape):
    dims = b"".join(message(1, number(1, d)) for d in shape)
    return message(1, name) + message(2, message(1, number(1, FLOAT) + message(2, dims)))


class Graph:
    """A network in the making; add() returns the name of the node's output."""

    def __init__(self, name):
        self._name = name
        self._nodes, self._constants, self._inputs, self._outputs = [], [], [], []

    def input(self, name, shape):
        self._inputs.append(value_info(name, shape))
        return name

    def constant(self, name, shape, data, kind=FLOAT):
        """`data`: little-endian bytes."""
        self._constants.append(tensor(name, shape, data, kind))
        return name

    def add(self, op, inputs, name, **attributes):
        content = b"".join(message(1, i) for i in inputs) + message(2, name) + message(3, name) + message(4, op)
        content += b"".join(message(5, attribute(key, value)) for key, value in attributes.items())
        self._nodes.append(content)
        return name

    def output(self, name, shape):
        self._outputs.append(value_info(name, shape))

    def bytes(self):
        graph = b"".join(message(1, n) for n in self._nodes) + message(2, self._name)
        for field, parts in ((5, self._constants), (11, self._inputs), (12, self._outputs)):
            graph += b"".join(message(field, part) for part in parts)
        return number(1, IR_VERSION) + message(2, "diapason bench") + message(7, graph) + message(8, number(2, OPSET))
