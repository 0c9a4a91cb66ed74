# SPDX-License-Identifier: Apache-2.0
"""A client of the store on a raw socket, for tests that behave well, badly, slowly or not at all."""

import socket
import struct

from .wait import DEADLINE

MAGIC = bytes.fromhex("cef7853c")
MAX_KEY, MAX_VALUE, MAX_KEYS = 8192, 8 << 20, 131072
SET, COMPARE_SET, GET, ADD, CHECK, WAIT, NUM_KEYS = 1, 2, 3, 4, 5, 6, 7
DELETE, APPEND, MULTI_GET, MULTI_SET, CANCEL, PING = 8, 9, 10, 11, 12, 13
PUSH, POP, QUEUE_LEN, LIST_KEYS, BARRIER = 14, 15, 16, 17, 18


def u64(n):
    return struct.pack("<Q", n)


def text(value):
    return u64(len(value)) + value


def request(op, *fields):
    """Integers become 64-bit numbers, byte strings get their length in front."""
    return bytes([op]) + b"".join(
        text(f) if isinstance(f, bytes) else struct.pack("<q", f) for f in fields
    )


class Peer:
    """A client of the store on a raw socket. Every wait is bounded by the deadline."""

    def __init__(self, port, greet=True, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout=DEADLINE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if greet:
            self.send(b"\0" + MAGIC)

    def send(self, data):
        self.sock.sendall(data)

    def recv(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.sock.recv(min(size - len(data), 1 << 20))
            if not part:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def number(self):
        return struct.unpack("<q", self.recv(8))[0]

    def value(self):
        return self.recv(self.number())

    def ping(self):
        self.send(bytes([PING]) + b"ping")
        return self.recv(4) == b"ping"

    def set(self, key, value):
        self.send(request(SET, key, value))

    def get(self, key):
        self.send(request(GET, key))
        return self.value()

    def add(self, key, delta):
        self.send(request(ADD, key, delta))
        return self.number()

    def keys(self):
        self.send(request(LIST_KEYS))
        return [self.value() for _ in range(self.number())]

    def ended(self):
        """True when the store ends the connection without another byte."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.sock.close()
