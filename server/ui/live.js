// The view of what goes on now: figures, latencies, workers.
import { Latencies, LatencyPlot, percentile } from "./latencies.js";
import { byId, count, duration, el } from "./shapes.js";
import { Topology } from "./topology.js";

const kWindow = 10; // seconds that the figures look back

export class LiveView {
  ttft = new Latencies();
  itl = new Latencies();

  constructor() {
    this.plots = [new LatencyPlot(byId("plot-ttft"), this.ttft, "Time to the first token"),
      new LatencyPlot(byId("plot-itl"), this.itl, "Time between tokens")];
    this.topology = new Topology(byId("topology"));
    this.tiles = new Map();
    for (const [id, name] of [["ttft", "First token, p50"], ["ttft99", "First token, p99"],
      ["itl", "Next token, p50"], ["itl99", "Next token, p99"], ["rate", "Tokens per second"],
      ["running", "Requests running"], ["failovers", "Failovers"]]) {
      const value = el("dd", { id: `tile-${id}` }, "–");
      this.tiles.set(id, value);
      byId("tiles").append(el("div", {}, el("dt", {}, name), value));
    }
  }

  update(live) {
    this.ttft.add(live.ttft, live.second);
    this.itl.add(live.itl, live.second);
    const end = live.second - 1;
    const first = this.ttft.sizes(end, kWindow), next = this.itl.sizes(end, kWindow);
    const tokens = this.ttft.countOf(end, kWindow) + this.itl.countOf(end, kWindow);
    const failovers = Object.values(live.failovers).reduce((sum, n) => sum + n, 0);
    const show = (id, text, small = "") => {
      const tile = this.tiles.get(id);
      if (tile.firstChild?.data === text && (tile.lastElementChild?.textContent ?? "") === small) return;
      tile.replaceChildren(text, ...(small ? [el("small", {}, small)] : []));
    };
    show("ttft", duration(percentile(first, 0.5)));
    show("ttft99", duration(percentile(first, 0.99)));
    show("itl", duration(percentile(next, 0.5)));
    show("itl99", duration(percentile(next, 0.99)));
    show("rate", count(tokens / kWindow));
    show("running", count(live.requests.running), live.requests.waiting > 0 ? `${count(live.requests.waiting)} wait` : "");
    show("failovers", count(failovers), "since the start");
    this.topology.update(live.workers);
    this.draw();
  }

  // Also when the view comes in sight, or the theme changes.
  draw() {
    for (const plot of this.plots) plot.draw();
    this.topology.drawWires();
  }
}
