"""What passes a port, by tcpdump, and what is found in it."""
import signal
import struct

ETHERNET = 14  # bytes before the IP packet, on loopback too


def tokens_as_sent(tokens):
    """Tokens as the control wire packs them."""
    packed = b""
    for token in tokens:
        while token >= 0x80:
            packed += bytes([token & 0x7F | 0x80])
            token >>= 7
        packed += bytes([token])
    return packed


def marks_of(tokens, n=6):
    """Any `n` tokens in a row, which no other traffic has by chance."""
    return [tokens_as_sent(tokens[at:at + n]) for at in range(len(tokens) - n + 1)]


class Capture:
    """Of one TCP port on a device of a host, into a file, until it is stopped."""

    def __init__(self, deployment, name, host, device, port):
        self.deployment, self.name, self.port = deployment, name, port
        self.file = deployment.folder / f"{name}.pcap"
        deployment.run(name, host, "tcpdump", "-i", device, "-Z", "root", "--immediate-mode", "-B", "16384", "-U", "-w",
                       self.file, "tcp", "port", str(port))

    def has_begun(self):
        return self.file.exists() and self.file.stat().st_size >= 24  # the header of the file

    def stop(self):
        program = self.deployment.programs.pop(self.name)
        program.send_signal(signal.SIGINT)
        program.wait(timeout=30)
        self.bytes = self.file.read_bytes()

    def count(self, marks):
        return sum(mark in self.bytes for mark in marks)

    def first_payloads(self):
        """The first bytes that each side of each connection said whose first packet was seen."""
        at, opened, payloads = 24, set(), {}
        while at + 16 <= len(self.bytes):
            length = struct.unpack_from("<I", self.bytes, at + 8)[0]
            packet = self.bytes[at + 16 + ETHERNET:at + 16 + length]
            at += 16 + length
            head = (packet[0] & 15) * 4
            ports = struct.unpack_from(">HH", packet, head)
            flags, data = packet[head + 13], packet[head + (packet[head + 12] >> 4) * 4:
                                                    struct.unpack_from(">H", packet, 2)[0]]
            flow = packet[12:20], ports
            if flags & 2:
                opened.add(flow)
                payloads.pop(flow, None)
            if flow in opened and data:
                payloads.setdefault(flow, data)
        return list(payloads.values())
