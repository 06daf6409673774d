import type { components } from "./api.js";

export type ProblemDetails = components["schemas"]["Problem"];

/** An answer that is not 2xx. `code` never changes its meaning: docs/operations.md lists them. */
export class Problem extends Error {
  override readonly name = "Problem";

  constructor(
    readonly status: number,
    readonly code: string,
    /** All of it: `pointer`, `nodes`, `conflicts`, `errors` and what else says where. */
    readonly details: Partial<ProblemDetails>,
    /** To find the request in the service's log. */
    readonly requestId: string | null,
  ) {
    super(details.detail ?? `the answer has the status ${status}`);
  }

  /** Of an answer that is a problem, or of a proxy's answer, whose code is "not-foldback". */
  static of(response: Response, body: unknown): Problem {
    const details = typeof body === "object" && body !== null ? (body as Partial<ProblemDetails>) : {};
    return new Problem(response.status, details.code ?? "not-foldback", details, response.headers.get("x-request-id"));
  }

  static async read(response: Response): Promise<Problem> {
    return Problem.of(response, await response.json().catch(() => undefined));
  }
}
