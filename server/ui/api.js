// The API of the server that this page came from. Paths are relative, so that a proxy may serve all
// below a path of its own.

const kKey = "baton-key";
let key = sessionStorage.getItem(kKey) ?? "";

export const hasKey = () => key !== "";
export function setKey(text) {
  key = text.trim();
  if (key) sessionStorage.setItem(kKey, key);
  else sessionStorage.removeItem(kKey);
}

// The server's answer was an error; code: of its body.
export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function errorOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Not of Baton, but of something before it.
  }
  const message = error.message ?? `${response.status} ${response.statusText}`;
  return new ApiError(response.status, message, error.code);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function getJson(path, seconds = 10) {
  return (await ask(path, { signal: AbortSignal.timeout(1000 * seconds) })).json();
}

// Yields the texts of the `data:` lines of an event stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

// Streams an answer to the conversation: yields { id } first, then the chunks. Ends at once when
// `signal` is aborted.
export async function* chat(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  yield { id: response.headers.get("X-Request-Id") };
  for await (const text of events(response.body)) {
    if (text === "[DONE]") return;
    const chunk = JSON.parse(text);
    if (chunk.error) throw new ApiError(response.status, chunk.error.message, chunk.error.code);
    yield chunk;
  }
  throw new Error("The answer was cut off.");
}

// Asks what goes on, once a second while somebody looks, and tells `onLive` or `onError`. What was
// missed meanwhile comes with the next answer.
export class LivePoll {
  constructor(onLive, onError) {
    this.onLive = onLive;
    this.onError = onError;
    this.cursor = "";
    this.period = 1000;
    this.timer = 0;
    this.asking = false;
    document.addEventListener("visibilitychange", () => this.ask());
  }
  setPeriod(ms) {
    const sooner = ms < this.period;
    this.period = ms;
    if (sooner) this.ask();
  }
  async ask() {
    clearTimeout(this.timer);
    if (document.hidden || this.asking) return;
    this.asking = true;
    let goesOn = true;
    try {
      const live = await getJson(`v1/cluster/live?after=${this.cursor}`, 5);
      this.cursor = live.cursor;
      this.onLive(live);
    } catch (error) {
      this.onError(error);
      goesOn = !(error.status === 401 || error.status === 403); // until there is another key
    }
    this.asking = false;
    clearTimeout(this.timer);
    if (goesOn) this.timer = setTimeout(() => this.ask(), this.period);
  }
}
