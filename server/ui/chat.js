// The chat: a conversation that this page alone keeps, streamed answers, parameters.
import { chat, getJson } from "./api.js";
import { byId, count, duration, el, setText } from "./shapes.js";

const kAsks = ["What is 21 + 34?", "Can you tell me a story about a duck and a cellar?",
  "How do you spell the word lantern?"];
const kKept = "baton-parameters";
const kRanges = ["temperature", "top_p"];
const kFields = [...kRanges, "max_tokens", "seed", "system"];

// Paragraphs as text; between lines of three backticks, code. Nothing of it is ever HTML.
function words(text) {
  return text.split(/^```.*$/m).map((part, i) => {
    if (i % 2 === 1) return el("pre", {}, part.replace(/^\n|\n$/g, ""));
    const pieces = part.split(/`([^`\n]+)`/);
    return el("span", {}, ...pieces.map((piece, at) => (at % 2 === 1 ? el("code", {}, piece) : piece)));
  });
}

export class Chat {
  constructor(onError, onShow) {
    this.onError = onError; // of requests: whether a key is asked for
    this.onShow = onShow; // shows the request with this id
    this.history = []; // as the API takes it, but for the system prompt
    this.abort = null; // of the answer that runs
    this.messages = byId("messages");
    this.prompt = byId("prompt");
    this.send = byId("send");
    this.restore();
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.abort) this.stop();
      else this.ask(this.prompt.value);
    });
    this.prompt.addEventListener("keydown", (event) => this.onKey(event));
    this.prompt.addEventListener("input", () => this.fit());
    byId("clear").addEventListener("click", () => this.clear());
    this.clear();
    this.loadModels();
  }

  async loadModels() {
    try {
      const { data } = await getJson("v1/models");
      byId("model").replaceChildren(...data.map(({ id }) => el("option", { value: id }, id)));
    } catch (error) {
      this.onError(error);
    }
  }

  restore() {
    let kept = {};
    try {
      kept = JSON.parse(sessionStorage.getItem(kKept)) ?? {};
    } catch {
      // Of another version of the page.
    }
    for (const name of kFields) {
      const field = byId(name);
      if (kept[name] !== undefined) field.value = kept[name];
      const show = () => kRanges.includes(name) && setText(byId(`${name}-is`), Number(field.value).toFixed(2));
      show();
      field.addEventListener("input", () => {
        show();
        const values = Object.fromEntries(kFields.map((each) => [each, byId(each).value]));
        sessionStorage.setItem(kKept, JSON.stringify(values));
      });
    }
  }

  fit() {
    this.prompt.style.height = "auto";
    this.prompt.style.height = `${this.prompt.scrollHeight + 2}px`;
  }

  onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.abort) this.ask(this.prompt.value);
    }
  }

  stop() {
    this.abort?.abort();
  }

  clear() {
    this.stop();
    this.history = [];
    const asks = kAsks.map((text) =>
      el("button", { class: "quiet", type: "button", onclick: () => this.ask(text) }, text));
    this.messages.replaceChildren(el("div", { class: "empty" },
      el("h2", {}, "Ask the model"),
      el("p", {}, "Answers stream as they are computed. The conversation stays in this tab."),
      el("div", { class: "asks" }, ...asks)));
    this.prompt.focus({ preventScroll: true });
  }

  // Adds a turn to the view; returns its parts.
  turn(who, name, text) {
    this.messages.querySelector(".empty")?.remove();
    const body = el("div", { class: "words" }, ...words(text));
    const turn = el("article", { class: `turn ${who}` }, el("p", { class: "who" }, name), body);
    this.messages.append(turn);
    this.follow(true);
    return { turn, body };
  }

  // Keeps the end in sight, unless the reader has scrolled away from it.
  follow(always) {
    const { scrollHeight, scrollTop, clientHeight } = this.messages;
    if (always || scrollHeight - scrollTop - clientHeight < 80) this.messages.scrollTop = scrollHeight;
  }

  request() {
    const system = byId("system").value.trim();
    const body = {
      model: byId("model").value || undefined,
      messages: [...(system ? [{ role: "system", content: system }] : []), ...this.history],
      temperature: Number(byId("temperature").value),
      top_p: Number(byId("top_p").value),
    };
    for (const name of ["max_tokens", "seed"])
      if (byId(name).value !== "") body[name] = Number(byId(name).value);
    return body;
  }

  async ask(text) {
    text = text.trim();
    if (!text || this.abort) return;
    this.prompt.value = "";
    this.fit();
    this.turn("user", "You", text);
    const history = this.history; // of this conversation, also when another one is begun meanwhile
    history.push({ role: "user", content: text });
    const answer = new Answer(this);
    const abort = new AbortController();
    this.abort = abort;
    this.setRunning(true);
    try {
      for await (const chunk of chat(this.request(), abort.signal)) answer.take(chunk);
      answer.end("");
    } catch (error) {
      answer.end(abort.signal.aborted ? "stopped" : "failed");
      if (!abort.signal.aborted) {
        answer.fail(error);
        this.onError(error);
      }
    }
    this.abort = null;
    this.setRunning(false);
    if (answer.text) history.push({ role: "assistant", content: answer.text });
    else history.pop(); // asked again, it stands once
    this.follow(false);
  }

  setRunning(runs) {
    setText(this.send, runs ? "Stop" : "Send");
    this.send.classList.toggle("stop", runs);
    this.messages.setAttribute("aria-busy", String(runs));
  }
}

// The answer that runs: its text so far, and its times as this page sees them.
class Answer {
  text = "";
  reasoning = "";
  n = 0; // chunks with text
  id = null;
  usage = null;
  finish = null;

  constructor(view) {
    this.view = view;
    this.sent = performance.now();
    this.first = this.last = null;
    const { turn, body } = view.turn("answer", byId("model").value || "Model", "");
    this.turn = turn;
    this.body = body;
    turn.classList.add("runs");
  }

  take(chunk) {
    if (chunk.id && chunk.choices === undefined) {
      this.id = chunk.id;
      return;
    }
    this.usage = chunk.usage ?? this.usage;
    const choice = chunk.choices?.[0];
    this.finish = choice?.finish_reason ?? this.finish;
    const { content, reasoning_content, reasoning = reasoning_content } = choice?.delta ?? {};
    if (!content && !reasoning) return;
    this.last = performance.now();
    this.first ??= this.last;
    this.n += 1;
    this.text += content ?? "";
    if (reasoning) this.think(reasoning);
    // One drawing per frame, whatever comes in one.
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  think(text) {
    this.reasoning += text;
    if (!this.thoughts) {
      this.thoughts = el("div", { class: "words" });
      this.body.before(el("details", {}, el("summary", {}, "Reasoning"), this.thoughts));
    }
    setText(this.thoughts, this.reasoning);
  }

  draw() {
    this.frame = undefined;
    this.body.replaceChildren(...words(this.text));
    this.view.follow(false);
  }

  end(how) {
    cancelAnimationFrame(this.frame);
    this.draw();
    this.turn.classList.remove("runs");
    const n = this.usage?.completion_tokens ?? this.n;
    const facts = [];
    if (this.first !== null) facts.push(`first token ${duration(this.first - this.sent)}`);
    if (n > 0) facts.push(`${count(n)} tokens`);
    if (n > 1 && this.last > this.first)
      facts.push(`${count((1000 * (n - 1)) / (this.last - this.first))} per second`);
    if (how || this.finish === "length") facts.push(how || "cut off by max tokens");
    const line = el("p", { class: "facts" }, ...facts.map((fact) => el("span", {}, fact)));
    if (this.id)
      line.append(el("button", { type: "button", onclick: () => this.view.onShow(this.id) }, "waterfall"));
    this.turn.append(line);
  }

  fail(error) {
    this.turn.append(el("p", { class: "error", role: "alert" }, error.message));
  }
}
