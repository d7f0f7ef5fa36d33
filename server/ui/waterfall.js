// Requests as bars of their stages: a list of the last ones, and one in detail, attempt by attempt.
import { count, duration, el, svg } from "./shapes.js";

const kMost = 200; // ended requests that are kept
const kStages = {
  text: "text", route: "waits for a worker", prefill_queue: "prefill queue", prefill: "prefill",
  transfer: "transfer", decode_queue: "decode queue", decode: "decode", runs: "still running",
};
const kLegend = ["route", "prefill", "transfer", "decode"];
const kCauses = {
  worker_lost: "worker lost", part_failed: "part failed", handoff_failed: "handoff failed",
  stuck: "stuck", draining: "worker draining", late: "late", preempted: "moved or preempted",
};

const failoversOf = (request) => request.attempts.filter((attempt) => attempt.failure).length;

// Stages of a request as [stage, worker, begin, end, attempt]; ms since it arrived.
function stagesOf(request) {
  const stages = [["text", "", 0, request.text_ms, 0]];
  let free = request.text_ms; // when it began to wait for a worker
  for (const attempt of request.attempts) {
    const add = (stage, worker, begin, end) => stages.push([stage, worker, begin, end, attempt.number]);
    if (attempt.sent_ms > free) add("route", "", free, attempt.sent_ms);
    for (const span of attempt.spans) add(span.stage, span.worker, span.begin_ms, span.end_ms);
    const end = attempt.failure ? attempt.failure.at_ms : request.total_ms;
    const told = attempt.spans.map((span) => span.stage);
    // What a worker has not told of, as it does at the end of its part alone.
    const computed = attempt.spans.filter((span) => span.stage === "prefill").map((span) => span.end_ms);
    if (!told.includes("prefill")) add("prefill", attempt.prefill.at(-1), attempt.sent_ms, end);
    else if (!told.includes("decode") && attempt.decode)
      add(request.finish || attempt.failure ? "decode" : "runs", attempt.decode, Math.max(...computed), end);
    free = end;
  }
  if (request.waits) stages.push(["route", "", free, request.total_ms, 0]);
  return stages;
}

function bars(stages, from, to, height) {
  const scale = 1000 / Math.max(1e-3, to - from);
  return stages.map(([stage, , begin, end]) => {
    const small = stage === "transfer"; // beside prefill, which it overlaps
    return svg("rect", {
      class: `span-${stage}`, x: (begin - from) * scale, width: Math.max(2, (end - begin) * scale),
      y: small ? height * 0.68 : height * 0.14, height: small ? height * 0.32 : height * 0.5,
    });
  });
}

const canvasOf = (height, shapes, label) =>
  svg("svg", { viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none", role: label ? "img" : null,
    "aria-label": label, "aria-hidden": label ? null : "true" }, ...shapes);

const failureMark = (x, height) =>
  svg("line", { class: "fail", "vector-effect": "non-scaling-stroke", x1: x, x2: x, y1: 0, y2: height });

const isBad = (request) => request.finish && (request.status >= 400 || request.finish === "error");
const endOf = (request) =>
  request.finish ? (isBad(request) ? `${request.finish} ${request.status}` : request.finish)
    : request.waits ? "waits" : "runs";

export class Waterfall {
  constructor(list, detail, options) {
    this.list = list;
    this.detail = detail;
    this.options = options; // { onlyFailovers, hold, legend }
    this.requests = new Map(); // id and arrival -> request, in order of arrival
    this.chosen = null;
    this.shown = [];
    this.zooms = false; // whether the detail ends at the first token
    options.legend.append(...kLegend.map((stage) => el("li", {},
      svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
        svg("rect", { class: `span-${stage}`, width: 10, height: 10, rx: 2 })),
      stage === "route" ? "queues" : stage)),
      el("li", {}, svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
        svg("line", { class: "fail", x1: 5, x2: 5, y1: 0, y2: 10 })), "failover"));
    options.onlyFailovers.addEventListener("change", () => this.draw());
    list.addEventListener("keydown", (event) => this.onKey(event));
  }

  update(live) {
    this.ended ??= new Map();
    for (const request of live.finished) this.ended.set(`${request.id} ${request.arrived}`, request);
    while (this.ended.size > kMost) this.ended.delete(this.ended.keys().next().value);
    if (this.options.hold.checked) return;
    const all = [...live.running, ...this.ended.values()].sort((a, b) => b.arrived - a.arrived);
    this.requests = new Map(all.map((request) => [request.id, request]));
    this.draw();
  }

  choose(id) {
    this.chosen = id;
    this.draw();
    this.list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }

  onKey(event) {
    const at = this.shown.indexOf(this.chosen);
    const last = this.shown.length - 1;
    const next = { ArrowDown: Math.min(last, at + 1), ArrowUp: Math.max(0, at - 1), Home: 0, End: last }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this.choose(this.shown[next]);
  }

  draw() {
    if (this.list.clientWidth === 0) return; // not shown
    const only = this.options.onlyFailovers.checked;
    const requests = [...this.requests.values()].filter((request) => !only || failoversOf(request) > 0);
    this.shown = requests.map((request) => request.id);
    if (!this.shown.includes(this.chosen)) this.chosen = this.shown[0] ?? null;
    const longest = Math.max(...requests.slice(0, 40).map((request) => request.total_ms), 1);
    const rows = requests.map((request, i) => this.rowOf(request, i, longest));
    if (rows.length === 0)
      rows.push(el("p", { class: "none" }, only ? "No request had a failover." : "No request yet."));
    const top = this.list.scrollTop;
    this.list.replaceChildren(...rows);
    this.list.scrollTop = top;
    const at = this.shown.indexOf(this.chosen);
    if (at >= 0) this.list.setAttribute("aria-activedescendant", `request-${at}`);
    else this.list.removeAttribute("aria-activedescendant");
    this.drawDetail(this.requests.get(this.chosen));
  }

  rowOf(request, i, longest) {
    const to = Math.max(longest, request.total_ms);
    const shapes = bars(stagesOf(request), 0, to, 16);
    for (const { failure } of request.attempts)
      if (failure) shapes.push(failureMark((1000 * failure.at_ms) / to, 16));
    const n = failoversOf(request);
    const time = new Date(1000 * request.arrived).toLocaleTimeString("en-GB");
    const label = `${time}, ${endOf(request)}, ${count(request.tokens)} tokens in ${duration(request.total_ms)}` +
      (n > 0 ? `, ${n} failovers` : "");
    return el("div", {
      class: "request", role: "option", id: `request-${i}`, "aria-selected": String(request.id === this.chosen),
      "aria-label": label, "data-id": request.id, onclick: () => this.choose(request.id),
    },
      el("span", { class: "at" }, time),
      el("span", { class: "end", "data-is": isBad(request) ? "bad" : request.finish ? null : "runs" }, endOf(request)),
      canvasOf(16, shapes),
      el("span", { class: "took" }, duration(request.total_ms)));
  }

  drawDetail(request) {
    if (!request) {
      this.detail.replaceChildren(el("p", { class: "id" }, "Choose a request to see its stages."));
      return;
    }
    const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    const facts = el("dl", {},
      fact("First token", duration(request.ttft_ms)),
      fact("Total", duration(request.total_ms)),
      fact("Prompt", `${count(request.prompt_tokens)} tokens`),
      fact("Reused", `${count(request.reused_tokens)} tokens`),
      fact("Answer", `${count(request.tokens)} tokens`),
      fact("Ended by", endOf(request)));
    if (request.key) facts.append(fact("Key", request.key));
    if (request.choices > 1) facts.append(fact("Choices", count(request.choices)));
    const focused = this.detail.contains(document.activeElement);
    const zoom = el("button", { class: "quiet zoom", type: "button", "aria-pressed": String(this.zooms),
      onclick: () => {
        this.zooms = !this.zooms;
        this.drawDetail(request);
      } }, "Up to the first token");
    this.detail.replaceChildren(
      el("header", {}, el("h2", {}, `${request.endpoint} request`), request.ttft_ms === undefined ? null : zoom), el("p", { class: "id" }, request.id), facts,
      ...this.lanesOf(request));
    if (focused && zoom.isConnected) zoom.focus({ preventScroll: true });
  }

  lanesOf(request) {
    const first = request.ttft_ms;
    const total = Math.max(this.zooms && first !== undefined ? 1.04 * first : request.total_ms, 1e-3);
    const lane = ([stage, worker, begin, end]) => {
      const name = kStages[stage];
      const shapes = bars([[stage === "transfer" ? "transfer" : stage, worker, begin, end]], 0, total, 14);
      shapes[0].setAttribute("y", 3);
      shapes[0].setAttribute("height", 8);
      if (first !== undefined)
        shapes.push(svg("line", { class: "first", "vector-effect": "non-scaling-stroke",
          x1: (1000 * first) / total, x2: (1000 * first) / total, y1: 0, y2: 14 }));
      return el("div", { class: "lane" },
        el("span", { class: "what", title: `${name} ${worker}` }, name, " ", el("small", {}, worker)),
        canvasOf(14, shapes, `${name}${worker ? ` at ${worker}` : ""}: from ${duration(begin)} to ${duration(end)}`),
        el("span", { class: "long" }, duration(end - begin)));
    };
    const stages = stagesOf(request);
    const parts = [el("div", { class: "lanes" }, ...stages.filter(([, , , , attempt]) => attempt === 0).map(lane))];
    const many = request.attempts.length > 1;
    for (const attempt of request.attempts) {
      const group = el("div", { class: "lanes" });
      if (many) group.append(el("p", { class: "attempt" }, `Attempt ${attempt.number}`));
      const own = stages.filter((stage) => stage[4] === attempt.number).sort((a, b) => a[2] - b[2]);
      group.append(...own.map(lane));
      if (attempt.failure) {
        const { cause, message, worker, at_ms: at } = attempt.failure;
        group.append(el("p", { class: "failure" },
          `✕ ${kCauses[cause] ?? cause} at ${duration(at)}${worker ? ` (${worker})` : ""}: ${message}`));
      }
      parts.push(group);
    }
    parts.push(el("div", { class: "axis", "aria-hidden": "true" }, el("span"),
      el("span", {}, el("span", {}, "0"), el("span", {}, duration(total / 2)), el("span", {}, duration(total))), el("span")));
    if (first !== undefined) parts.push(el("p", { class: "id" }, `┆ first token at ${duration(first)}`));
    return parts;
  }
}
