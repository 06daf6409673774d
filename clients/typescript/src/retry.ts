/** How often a request is sent, and how long is waited between. */
export interface RetryOptions {
  /** 5 */
  attempts?: number;
  /** Milliseconds before the second attempt; doubles each time, up to 30 s. An answer's Retry-After goes before it. 200 */
  pause?: number;
}

/** POSTs that the service does not know again by an Idempotency-Key: what was done twice would be there twice. */
const withoutKey = /^\/v1\/(blobs\/uploads|tokens|webhooks(\/.*)?|transformations)$/;

/** POSTs that change nothing. */
const onlyReads = /^\/v1\/(blobs\/missing|picture)$/;

export function takesKey(path: string): boolean {
  return !withoutKey.test(path) && !onlyReads.test(path);
}

const mayRepeat = (method: string, path: string, headers: Headers) =>
  method !== "POST" || onlyReads.test(path) || headers.has("idempotency-key");

function wait(milliseconds: number, signal: AbortSignal | null | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

function pauseOf(response: Response | undefined, attempt: number, options: Required<RetryOptions>): number {
  const told = Number(response?.headers.get("retry-after") ?? NaN);
  if (Number.isFinite(told) && told >= 0) return told * 1000;
  return Math.min(options.pause * 2 ** attempt, 30_000) * (0.5 + Math.random() / 2);
}

const IN_PROGRESS = 60_000; // milliseconds for which a request is waited for whose first attempt still runs

/**
 * Sends a request until it is answered by anything but 503 and 429, which mean that nothing was done, and 409 with Retry-After, which
 * means that its first attempt still runs, and does not count as an attempt. A connection that breaks is another matter: then it is
 * sent again only where that does nothing twice.
 */
export async function sendAgain(send: typeof fetch, url: string, init: RequestInit, path: string, retry: RetryOptions): Promise<Response> {
  const options = { attempts: retry.attempts ?? 5, pause: retry.pause ?? 200 };
  const method = (init.method ?? "GET").toUpperCase();
  const headers = new Headers(init.headers);
  if (method === "POST" && takesKey(path) && !headers.has("idempotency-key")) headers.set("idempotency-key", crypto.randomUUID());
  const isKnown = headers.has("idempotency-key") && options.attempts > 1;
  for (let attempt = 0, waited = 0; ; attempt++) {
    const isLast = attempt + 1 >= options.attempts;
    let response: Response | undefined;
    try {
      response = await send(url, { ...init, headers });
    } catch (error) {
      if (isLast || init.signal?.aborted || !mayRepeat(method, path, headers)) throw error;
    }
    const pause = pauseOf(response, attempt, options);
    const isRunning = response?.status === 409 && isKnown && response.headers.has("retry-after") && waited < IN_PROGRESS;
    if (response && !isRunning && (isLast || (response.status !== 503 && response.status !== 429))) return response;
    if (isRunning) {
      attempt--;
      waited += Math.max(pause, 100);
    }
    await response?.body?.cancel();
    await wait(pause, init.signal);
  }
}
