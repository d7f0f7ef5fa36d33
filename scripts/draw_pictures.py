#!/usr/bin/env python3
"""Draws the pictures of README.md and docs/ARCHITECTURE.md: docs/pictures/*.svg.

  scripts/draw_pictures.py            writes them
  scripts/draw_pictures.py --check    writes nothing; fails if a committed picture differs

Plain Python, no packages. Lengths are pixels at the natural size of a picture.
"""

import html
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "pictures"

INK, SOFT, LINE, PAPER = "#1b2733", "#5b6b7b", "#8a99a8", "#ffffff"
ROUTER, PREFILL, DECODE, CLIENT = "#dbe9ff", "#ffe9cc", "#d9f2dc", "#eef1f4"
HTTP, GRPC, UCX = "#3b6fd4", "#7a4fc0", "#c8501e"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


class Picture:
    """An SVG of fixed size, drawn from back to front."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts, self.heads = [], []

    def box(self, x, y, width, height, fill, stroke=LINE, dashed=False, radius=8):
        dash = " stroke-dasharray='6 4'" if dashed else ""
        self.parts.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='{radius}' "
            f"fill='{fill}' stroke='{stroke}' stroke-width='1.5'{dash}/>")

    def text(self, x, y, words, size=13, colour=INK, bold=False, anchor="middle"):
        weight = " font-weight='bold'" if bold else ""
        self.parts.append(
            f"<text x='{x}' y='{y}' font-size='{size}' fill='{colour}' "
            f"text-anchor='{anchor}'{weight}>{html.escape(words)}</text>")

    def lines(self, x, y, rows, size=13, colour=SOFT, anchor="middle", step=17):
        for i, row in enumerate(rows):
            self.text(x, y + i * step, row, size, colour, anchor=anchor)

    def arrow(self, points, colour, width=2, both=False, dashed=False):
        kind = (colour, 4 + width)  # colour and half height of the head
        if kind not in self.heads:
            self.heads.append(kind)
        head = self.heads.index(kind)
        path = " ".join(f"{'M' if i == 0 else 'L'}{x},{y}" for i, (x, y) in enumerate(points))
        start = f" marker-start='url(#head{head})'" if both else ""
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self.parts.append(
            f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='{width}'{dash} "
            f"marker-end='url(#head{head})'{start}/>")

    def svg(self):
        heads = "".join(
            f"<marker id='head{i}' markerWidth='{2 * half}' markerHeight='{2 * half}' "
            f"refX='{half + 2}' refY='{half}' orient='auto-start-reverse' "
            "markerUnits='userSpaceOnUse'>"
            f"<path d='M0,0 L{2 * half - 2},{half} L0,{2 * half} z' fill='{colour}'/></marker>"
            for i, (colour, half) in enumerate(self.heads))
        body = "\n".join(self.parts)
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{self.width}' height='{self.height}' "
            f"viewBox='0 0 {self.width} {self.height}' role='img' {FONT}>\n"
            f"<title>{html.escape(self.title)}</title>\n<defs>{heads}</defs>\n"
            f"<rect width='{self.width}' height='{self.height}' rx='10' fill='{PAPER}'/>\n"
            f"{body}\n</svg>\n")


def cluster():
    """The overview: the processes, and the data on each wire."""
    p = Picture(980, 400, "A Baton cluster: a client, the router, prefill and decode workers")
    p.box(196, 24, 766, 352, "none", dashed=True)
    p.text(210, 366, "baton serve: one machine, or a role on each of several", 12, SOFT,
           anchor="start")

    p.box(24, 146, 112, 84, CLIENT)
    p.text(80, 182, "client", 15, bold=True)
    p.lines(80, 203, ["curl, openai, ..."], 11)

    p.box(256, 116, 176, 144, ROUTER)
    p.text(344, 146, "router", 16, bold=True)
    p.lines(344, 172, ["OpenAI API, text, tokens", "chooses the workers",
                       "keeps each stream whole", "never touches KV"], 12)

    p.box(690, 48, 214, 104, PREFILL)  # the second prefill worker, behind
    p.box(676, 58, 214, 104, PREFILL)
    p.text(783, 86, "prefill workers", 16, bold=True)
    p.lines(783, 110, ["prompt to KV and first token,", "in chunks, or several workers",
                       "on one long prompt (relay)"], 12)

    p.box(690, 244, 214, 88, DECODE)
    p.box(676, 254, 214, 88, DECODE)
    p.text(783, 282, "decode workers", 16, bold=True)
    p.lines(783, 306, ["all further tokens, one batch", "that changes at every step"], 12)

    p.arrow([(136, 176), (254, 176)], HTTP)
    p.text(166, 168, "prompt", 12, HTTP)
    p.arrow([(256, 206), (138, 206)], HTTP)
    p.text(166, 224, "tokens", 12, HTTP)
    p.lines(166, 254, ["HTTP", "SSE"], 11, HTTP, step=14)

    p.arrow([(432, 140), (554, 86), (674, 86)], GRPC)
    p.text(590, 76, "prompt, signed ticket", 12, GRPC)
    p.arrow([(676, 132), (566, 132), (434, 172)], GRPC)
    p.text(590, 124, "first token, at once", 12, GRPC)
    p.arrow([(432, 206), (554, 278), (674, 278)], GRPC)
    p.text(590, 268, "ticket, stop rules", 12, GRPC)
    p.arrow([(676, 322), (546, 322), (434, 246)], GRPC)
    p.text(590, 340, "tokens 2, 3, ...", 12, GRPC)
    p.text(590, 202, "gRPC, one stream per worker", 11, GRPC)

    p.arrow([(783, 162), (783, 250)], UCX, width=6)
    p.lines(799, 192, ["KV pages over UCX,", "layer by layer, while", "the prompt is computed"],
            12, UCX, "start", 16)
    return p


ROOMS = [  # from the roof down: floor, [(room, what it does, weight of its width)]
    ("roof", [("server/cli", "main() and the commands; alone sees bench", 1)]),
    ("6", [("server", "http · access · api · config · process: HTTP in, streams out", 3),
           ("bench", "kernels · relay · load", 1)]),
    ("5", [("lab", "for comparisons only: slow links, other ways of relays", 1)]),
    ("4", [("worker", "both phases on one engine: WorkerCore, engine thread", 1)]),
    ("3", [("router", "chooses who computes", 1),
           ("prefill_worker", "prompts to KV, first token", 1),
           ("decode_worker", "KV to tokens, one batch", 1)]),
    ("2", [("kvtransfer", "pages between processes", 1), ("planner", "what a prompt costs", 1)]),
    ("1", [("engine", "model, checkpoint, kv, cpu, ...", 2), ("text", "tokens, templates", 1),
           ("proto", "words on the wire", 1)]),
    ("0", [("common", "status, log, settings, metrics, mailbox, ids, tickets, state tables", 1)]),
]


def rooms():
    """The floors: the rooms of each, and the allowed includes."""
    p = Picture(880, 504, "The rooms of the repository, by floor; includes go strictly downwards")
    colours = {"router": ROUTER, "prefill_worker": PREFILL, "decode_worker": DECODE,
               "worker": "#fff6d6", "server": ROUTER, "server/cli": ROUTER}
    left, width, gap, height = 84, 772, 12, 48
    for row, (floor, row_rooms) in enumerate(ROOMS):
        y = 22 + row * (height + 10)
        p.text(68, y + 29, floor if floor == "roof" else f"floor {floor}", 12, SOFT, anchor="end")
        unit = (width - gap * (len(row_rooms) - 1)) / sum(weight for _, _, weight in row_rooms)
        x = float(left)
        for name, what, weight in row_rooms:
            p.box(round(x), y, round(unit * weight), height, colours.get(name, CLIENT))
            middle = round(x + unit * weight / 2)
            p.text(middle, y + 21, name, 15, bold=True)
            p.text(middle, y + 38, what, 11, SOFT)
            x += unit * weight + gap
    p.text(470, 494, "An include goes from a room to floors below it, never up and never sideways.",
           12, SOFT)
    return p


def threads():
    """Processes, their threads, and the bounded queues between them."""
    p = Picture(980, 560, "Threads and mailboxes of a router process and a worker process")

    p.box(20, 20, 940, 186, "#f7faff")
    p.text(36, 44, "router process", 14, bold=True, anchor="start")
    p.box(300, 60, 280, 124, ROUTER)
    p.text(440, 84, "front thread (EventLoop)", 14, bold=True)
    p.lines(440, 108, ["HttpServer, ApiFront, timers", "RouterGenerator around the core:",
                       "Router"], 12, step=18)
    p.text(440, 170, "event, now -> RouterEffect", 11, SOFT)
    p.box(40, 76, 150, 92, CLIENT)
    p.text(115, 104, "text threads", 14, bold=True)
    p.lines(115, 126, ["template, tokenizer", "for long bodies"], 12)
    p.arrow([(300, 100), (192, 100)], GRPC)
    p.text(246, 92, "TextPool", 11, GRPC)
    p.arrow([(190, 148), (298, 148)], GRPC)
    p.text(246, 166, "Post", 11, GRPC)
    p.box(750, 76, 190, 92, CLIENT)
    p.text(845, 104, "gRPC's threads", 14, bold=True)
    p.lines(845, 126, ["ControlServer, and", "CompletionService: post only"], 12)
    p.arrow([(750, 100), (582, 100)], GRPC)
    p.text(666, 92, "ControlEvent", 11, GRPC)
    p.arrow([(580, 148), (748, 148)], GRPC)
    p.text(666, 166, "RouterMessage", 11, GRPC)

    p.box(20, 264, 940, 276, "#fffaf2")
    p.text(36, 288, "worker process", 14, bold=True, anchor="start")
    p.arrow([(845, 170), (845, 300)], GRPC, width=3, both=True)
    p.lines(830, 232, ["one bidirectional gRPC stream per worker",
                       "down: RouterMessage · up: WorkerReport"], 12, GRPC, "end")
    p.box(750, 302, 190, 92, CLIENT)
    p.text(845, 330, "dialler, gRPC's threads", 13, bold=True)
    p.lines(845, 352, ["ControlClient:", "parse and post only"], 12)
    p.box(300, 302, 280, 124, PREFILL)
    p.text(440, 326, "engine thread (EngineThread)", 14, bold=True)
    p.lines(440, 350, ["the core: WorkerCore =", "PrefillScheduler + DecodeBatch + PageLender",
                       "KvPool, Backend, Sampler"], 11, step=17)
    p.text(440, 414, "one step, then one slice block, a turn", 11, SOFT)
    p.box(40, 302, 150, 92, CLIENT)
    p.text(115, 330, "compute pool", 14, bold=True)
    p.lines(115, 352, ["inside a step only", "(ComputePool)"], 12)
    p.arrow([(298, 348), (192, 348)], SOFT, both=True)
    p.arrow([(750, 326), (582, 326)], GRPC)
    p.text(666, 318, "RouterEvent", 11, GRPC)
    p.arrow([(580, 374), (748, 374)], GRPC)
    p.text(666, 392, "WorkerReport", 11, GRPC)

    p.box(300, 462, 280, 64, DECODE)
    p.text(440, 486, "link thread (Transfer)", 14, bold=True)
    p.lines(440, 510, ["the core: TransferCore · all of UCX"], 12)
    p.arrow([(380, 426), (380, 460)], UCX)
    p.text(370, 449, "TransferCommand", 11, UCX, anchor="end")
    p.arrow([(500, 462), (500, 428)], UCX)
    p.text(510, 449, "TransferEvent", 11, UCX, anchor="start")
    p.arrow([(582, 494), (746, 494)], UCX, width=4, both=True)
    p.text(760, 490, "KV to and from other", 12, UCX, anchor="start")
    p.text(760, 506, "workers (UCX)", 12, UCX, anchor="start")
    p.box(40, 462, 150, 64, CLIENT)
    p.text(115, 486, "HTTP loop", 14, bold=True)
    p.lines(115, 508, ["/metrics /livez /readyz"], 11)
    return p


PICTURES = {"cluster.svg": cluster, "rooms.svg": rooms, "threads.svg": threads}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    for name, draw in PICTURES.items():
        path, svg = FOLDER / name, draw().svg()
        if check:
            if not path.exists() or path.read_text() != svg:
                stale.append(name)
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(svg)
    if stale:
        sys.exit(f"docs/pictures: {', '.join(stale)} differ; run scripts/draw_pictures.py")


if __name__ == "__main__":
    main()
