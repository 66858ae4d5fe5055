// Requests of the page: with the token of this tab, if there is one, and the header that other sites cannot send.

const TOKEN = "raybus-token";

/** Keep a token for this tab alone. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  remove: () => sessionStorage.removeItem(TOKEN),
};

/** Send a request; the token goes to this server alone, in a header, and never into an address. */
export function request(path, options = {}) {
  const held = token.get();
  const headers = { "X-Raybus-Dashboard": "1", ...options.headers, ...(held ? { Authorization: `Bearer ${held}` } : {}) };
  return fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
}

/** A stream of events, which EventSource cannot read with an Authorization header. */
export class Stream {
  constructor(path, { event, opened, refused, ended }) {
    this.handlers = { event, opened, refused, ended };
    this.aborter = new AbortController();
    this.read(path);
  }

  close() {
    this.aborter.abort();
  }

  async read(path) {
    const { opened, refused, ended } = this.handlers;
    try {
      const answer = await request(path, { signal: this.aborter.signal });
      if (!answer.ok) {
        const text = (await answer.text()).trim();
        if (!this.aborter.signal.aborted) refused(answer.status, text, answer.headers.has("WWW-Authenticate"));
        return;
      }
      opened();
      await this.follow(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      // Not reachable, or the connection broke: the same as an end.
    }
    if (!this.aborter.signal.aborted) ended();
  }

  /** Hand on each block: its lines are `event: NAME` and `data: JSON`. */
  async follow(reader) {
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.aborter.signal.aborted) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const each of blocks) {
        const [name, data] = each.split("\n", 2);
        this.handlers.event(name.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
      }
    }
  }
}
