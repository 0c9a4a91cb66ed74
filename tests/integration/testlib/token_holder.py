# SPDX-License-Identifier: Apache-2.0
"""Somebody who has a job's token and speaks the control protocol (docs/PROTOCOL.md), true or not."""

import hashlib
import hmac
import json
import os
import socket
import struct

from .fake_agents import CONTROL_VERSION
from .wait import DEADLINE


class TokenHolder:
    """A connection that has proved the token."""

    def __init__(self, port, token):
        self.token, self.sent = token.encode(), 0
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.stream = self.sock.makefile("rb")
        nonce = os.urandom(32)
        self._write(type="open", version=CONTROL_VERSION, nonce=nonce.hex())
        nonces = bytes.fromhex(self._read()["nonce"]) + nonce
        self._write(type="answer", answer=self._derive(b"ctrun agent control 1\0", nonces).hex())
        self.key = self._derive(b"ctrun agent control 1, key of frames\0", nonces)
        assert self._read()["type"] == "accepted"

    def _derive(self, label, nonces):
        return hmac.digest(self.token, label + b"A" + nonces, hashlib.sha256)

    def _write(self, mac=False, **message):
        text = json.dumps(message).encode()
        frame = struct.pack(">I", 0x80000000 | len(text) + (40 if mac else 0)) + text
        if mac:
            frame += struct.pack(">Q", self.sent)
            frame += hmac.digest(self.key, frame, hashlib.sha256)
            self.sent += 1
        self.sock.sendall(frame)

    def _read(self):
        """Of a frame with a MAC, the MAC is not looked at."""
        length = struct.unpack(">I", self.stream.read(4))[0] & 0x7FFFFFFF
        return json.JSONDecoder().raw_decode(self.stream.read(length).decode(errors="replace"))[0]

    def send(self, **message):
        self._write(mac=True, **message)

    def close(self):
        """Waits until the other end has closed, so that it has heard everything."""
        self.sock.shutdown(socket.SHUT_WR)
        while self.stream.read(4096):
            pass
        self.stream.close()
        self.sock.close()


def tell_of_host(port, token, run_id, host_port, number):
    """Says at this port that the job is hosted at `host_port`, in a term of this number."""
    holder = TokenHolder(port, token)
    holder.send(
        type="ask", id=9, term=0, record_term=0, record_version=0, run_id=run_id, port=host_port,
        host_term=number << 32 | 9,
    )  # fmt: skip
    holder.close()
