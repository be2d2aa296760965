"""Reads and writes .npy files for tests of programs, without NumPy, which may not be installed."""
import ast
import math
import struct

CODES = {"<f2": "e", "<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "|u1": "B", "|b1": "?", "|i1": "b", "<i2": "h", "<u2": "H", "<u4": "I", "<u8": "Q"}


def header(descr, shape, fortran=False):
    shape_text = "(" + "".join(f"{n}, " for n in shape) + ")"
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape_text}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def write(path, values, shape=None, descr="<f4"):
    values = list(values)
    with open(path, "wb") as file:
        file.write(header(descr, (len(values),) if shape is None else shape))
        file.write(struct.pack(f"<{len(values)}{CODES[descr]}", *values))


def read(path):
    """Returns (values in row-major order, shape, descr)."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", path
    length = struct.unpack("<H", data[8:10])[0]
    described = ast.literal_eval(data[10:10 + length].decode())
    assert not described["fortran_order"], path
    shape, descr = described["shape"], described["descr"]
    count = math.prod(shape)
    body = data[10 + length:]
    values = list(struct.unpack(f"<{count}{CODES[descr]}", body))
    return values, shape, descr
