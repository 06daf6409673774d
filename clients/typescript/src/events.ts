/** One event of a stream of the service. */
export interface ServerEvent {
  id: string;
  /** "alias", "running", "progress", "succeeded" … */
  event: string;
  data: unknown;
}

/** Server-sent events (WHATWG HTML, 9.2) of a body, as they come. A comment and an event without data are left out; `seen` gets every id. */
export async function* readEvents(body: ReadableStream<Uint8Array>, seen: (id: string) => void): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let event = "";
  let data: string[] = [];
  let id = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event that is not complete is none
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          seen(id);
          if (data.length) yield { id, event: event || "message", data: JSON.parse(data.join("\n")) as unknown };
          event = "";
          data = [];
          continue;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") event = text;
        else if (field === "data") data.push(text);
        else if (field === "id") id = text;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
