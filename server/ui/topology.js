// Workers as cards, prefill on the left and decode on the right, and the links between them.
import { bytesPerSecond, count, duration, el, setText, svg } from "./shapes.js";

const kRemembered = 60000; // ms that a lost worker stays in sight
const kNew = 30000; // ms that a worker counts as new

// A bar of parts of a whole: [[class, value], ...].
function bar(parts, whole) {
  let at = 0;
  const rects = parts.map(([name, value]) => {
    const width = whole > 0 ? Math.min(100 - at, (100 * value) / whole) : 0;
    const rect = svg("rect", { class: name, x: at, y: 0, width, height: 7 });
    at += width;
    return rect;
  });
  return svg("svg", { viewBox: "0 0 100 7", preserveAspectRatio: "none", "aria-hidden": "true" }, ...rects);
}

function gauge(name, parts, whole, text) {
  return el("div", { class: "gauge" },
    el("span", { class: "name" }, name), bar(parts, whole), el("span", {}, text));
}

function linkText(link) {
  if (link.broken) return `✕ ${link.to}: broken, no KV gets through`;
  const speed = link.bytes_per_second > 0 ? bytesPerSecond(link.bytes_per_second) : "not measured yet";
  const moves = link.tokens_under_way > 0 ? `, ${count(link.tokens_under_way)} tokens on the way` : "";
  return `→ ${link.to}: ${speed}${moves}`;
}

function cardOf(worker, now, mostQueued) {
  const isLost = worker.lostAt !== null;
  const isNew = !isLost && worker.cameAt !== null && now - worker.cameAt < kNew;
  let badge = el("span", { class: "badge" }, worker.draining ? "draining" : "serving");
  if (worker.standing) badge = el("span", { class: "badge", "data-is": "bad" }, "stands still");
  if (isLost)
    badge = el("span", { class: "badge", "data-is": "bad" }, `lost ${duration(now - worker.lostAt)} ago`);
  else if (isNew)
    badge = el("span", { class: "badge", "data-is": "new" },
      `${worker.wasHere ? "came back" : "joined"} ${duration(now - worker.cameAt)} ago`);
  const head = el("header", {}, el("h3", {}, worker.name),
    el("span", { class: "role" }, worker.role === "both" ? "prefill and decode" : worker.role), badge);
  const card = el("article", { class: "worker", "data-role": worker.role, "data-is": isLost ? "lost" : null,
    "data-name": worker.name }, head);
  if (isLost) return card;
  const used = worker.pages.total - worker.pages.free;
  const promised = Math.max(0, Math.min(worker.pages.promised, worker.pages.total) - used);
  card.append(
    gauge("Queue", [["queued", worker.prefill_queued_tokens]], Math.max(1024, mostQueued),
      `${count(worker.prefill_queued_tokens)} tokens`),
    gauge("Batch", [["used", worker.decode_rows]], worker.max_batch,
      `${count(worker.decode_rows)} of ${count(worker.max_batch)}` +
        (worker.decode_waiting > 0 ? `, ${count(worker.decode_waiting)} wait` : "")),
    gauge("KV", [["pages", used], ["promised", promised]], worker.pages.total,
      `${count(used)} of ${count(worker.pages.total)} pages`));
  const links = worker.links.map((link) =>
    el("li", { "data-is": link.broken ? "bad" : null }, linkText(link)));
  if (links.length > 0) card.append(el("ul", { class: "links" }, ...links));
  return card;
}

export class Topology {
  constructor(place) {
    this.place = place;
    this.known = new Map(); // name -> worker as told last, with lostAt and cameAt
    this.started = performance.now();
    new ResizeObserver(() => this.drawWires()).observe(place);
  }

  update(workers) {
    const now = performance.now();
    const isFirst = this.known.size === 0;
    const told = new Map(workers.map((worker) => [worker.name, worker]));
    for (const [name, before] of this.known) {
      if (told.has(name)) continue;
      before.lostAt ??= now;
      if (now - before.lostAt > kRemembered) this.known.delete(name);
    }
    for (const [name, worker] of told) {
      const before = this.known.get(name);
      const isSame = before?.incarnation === worker.incarnation;
      this.known.set(name, {
        ...worker,
        lostAt: null,
        cameAt: isSame ? before.cameAt : isFirst ? null : now,
        wasHere: isSame ? before.wasHere : before !== undefined,
      });
    }
    this.draw(now);
  }

  draw(now) {
    const workers = [...this.known.values()].sort((a, b) =>
      a.name.localeCompare(b.name, "en", { numeric: true }));
    const mostQueued = Math.max(...workers.map((worker) => worker.prefill_queued_tokens), 0);
    const columns = [[], []];
    for (const worker of workers)
      columns[worker.role === "prefill" ? 0 : 1].push(cardOf(worker, now, mostQueued));
    if (workers.length === 0) {
      this.place.replaceChildren(el("p", { class: "none" }, "No worker is connected."));
      return;
    }
    this.wires = svg("svg", { "aria-hidden": "true" });
    this.place.replaceChildren(this.wires,
      ...columns.map((cards) => el("div", { class: "column" }, ...cards)));
    this.drawWires();
  }

  // Lines from card to card, where the layout has room for them between its columns.
  drawWires() {
    if (!this.wires || this.wires.clientWidth === 0) return;
    const frame = this.place.getBoundingClientRect();
    const boxes = new Map();
    for (const card of this.place.querySelectorAll(".worker"))
      boxes.set(card.dataset.name, card.getBoundingClientRect());
    const shapes = [];
    let number = 0;
    for (const worker of this.known.values()) {
      const from = boxes.get(worker.name);
      if (worker.lostAt !== null) continue;
      for (const link of worker.links) {
        const to = boxes.get(link.to);
        if (!from || !to || from.left === to.left) continue; // within a column: the cards' words tell
        const forward = from.left < to.left;
        const x1 = (forward ? from.right : from.left) - frame.left;
        const x2 = (forward ? to.left : to.right) - frame.left;
        const shift = forward ? -7 : 7; // both directions are seen
        const y1 = from.top + from.height / 2 - frame.top + shift;
        const y2 = to.top + to.height / 2 - frame.top + shift;
        const middle = (x1 + x2) / 2;
        const moves = link.tokens_under_way > 0;
        shapes.push(svg("path", { class: link.broken ? "wire broken" : moves ? "wire moves" : "wire",
          "data-link": `${worker.name} ${link.to}`,
          d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }));
        if (link.broken) {
          // Stands at a third of the curve, because others cross it in the middle.
          const x = x1 + (x2 - x1) * 0.37, y = y1 + (y2 - y1) * 0.26;
          shapes.push(svg("path", { class: "cross", d: `M${x - 5} ${y - 5} l10 10 m0 -10 l-10 10` }));
        } else if (forward && link.bytes_per_second > 0) {
          // Names stand at different places of their lines, so that they do not meet.
          const part = [0.5, 0.32, 0.68][number++ % 3];
          const words = svg("text", { x: x1 + (x2 - x1) * 0.5, y: y1 + (y2 - y1) * part - 5 });
          setText(words, bytesPerSecond(link.bytes_per_second));
          shapes.push(words);
        }
      }
    }
    shapes.sort((a, b) => (a.tagName === "text") - (b.tagName === "text"));
    this.wires.replaceChildren(...shapes);
  }
}
