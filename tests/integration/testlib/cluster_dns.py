# SPDX-License-Identifier: Apache-2.0
"""The names of the pods of headless Services, as the DNS of a cluster gives them: each question is answered from the
Endpoints that the API server has at that moment. A program of its own, because it runs inside of the test's network:

    cluster_dns.py ADDRESS API-SERVER TOKEN
"""

import json
import socket
import ssl
import struct
import sys
import urllib.request

DOMAIN = ["svc", "cluster", "local"]
A, IN, NO_NAME = 1, 1, 3


def read_name(packet, at):
    labels = []
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii").lower())
        at += 1 + packet[at]
    return labels, at + 1


def ask_api(server, token, path):
    request = urllib.request.Request(f"{server}{path}", headers={"Authorization": f"Bearer {token}"})
    # The API server has made its own certificate, in a network that nobody else can enter.
    with urllib.request.urlopen(request, timeout=10, context=ssl._create_unverified_context()) as answer:
        return json.load(answer)


def addresses_of(labels, server, token):
    """None if there is no such name."""
    if len(labels) not in (5, 6) or labels[-3:] != DOMAIN:
        return None
    service, namespace = labels[-5:-3]
    try:
        found = ask_api(server, token, f"/api/v1/namespaces/{namespace}/endpoints/{service}")
        # publishNotReadyAddresses puts those that are not ready beside the others.
        entries = [entry for subset in found.get("subsets") or [] for entry in subset.get("addresses") or []]
    except OSError:
        return None
    if len(labels) == 6:
        entries = [entry for entry in entries if entry.get("hostname") == labels[0]]
    return [entry["ip"] for entry in entries] or None


def answer(packet, server, token):
    labels, end = read_name(packet, 12)
    kind = struct.unpack_from(">H", packet, end)[0]
    found = addresses_of(labels, server, token)
    records = [] if found is None or kind != A else found
    flags = 0x8580 | (NO_NAME if found is None else 0)
    head = packet[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
    body = [struct.pack(">HHHIH", 0xC00C, A, IN, 1, 4) + socket.inet_aton(ip) for ip in records]
    return head + packet[12 : end + 4] + b"".join(body)


def main():
    address, server, token = sys.argv[1:]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 53))
    print("names are answered", flush=True)
    while True:
        packet, sender = udp.recvfrom(512)
        try:
            udp.sendto(answer(packet, server, token), sender)
        except (IndexError, struct.error, UnicodeDecodeError):
            pass  # no question


if __name__ == "__main__":
    main()
