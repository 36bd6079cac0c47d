// The client of comet's REST API. The browser's login cookie authenticates every call.
import { signal } from "@preact/signals";
import type { components } from "openapi";

export type Schemas = components["schemas"];
export type FieldError = Schemas["FieldError"];

/** Call is one request of the REST API; every button of the page has one, and shows it as curl. With ifNew, the server rejects
 * the call if the resource exists. */
export type Call = { method?: string; path: string; body?: unknown; ifMatch?: string; ifNew?: boolean };

/** Problem is an error response (RFC 9457), or a failure to reach the server with status 0. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly code = "",
    readonly errors: FieldError[] = [],
    readonly requestID = "",
    /** members are the additional members of this error code, for example of tool_error */
    readonly members: Record<string, unknown> = {},
  ) {
    super(detail);
  }

  /** text is the detail, followed by the short members. */
  get text(): string {
    const short = Object.entries(this.members).filter(([, value]) => typeof value !== "object");
    return short.length > 0 ? `${this.detail} (${short.map(([name, value]) => name + ": " + String(value)).join(", ")})` : this.detail;
  }

  /** with returns the problem with a further sentence. */
  with(sentence: string): Problem {
    return new Problem(this.status, this.detail + sentence, this.code, this.errors, this.requestID, this.members);
  }

  /** of returns any thrown value as a problem. */
  static of(thrown: unknown): Problem {
    return thrown instanceof Problem ? thrown : new Problem(0, thrown instanceof Error ? thrown.message : String(thrown));
  }
}

/** loggedIn is false once the server has rejected the login; undefined until it is known. */
export const loggedIn = signal<boolean | undefined>(undefined);

/** request sends a call and returns the response; an error status is thrown as a Problem. */
export async function request(c: Call, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (c.body !== undefined) headers["Content-Type"] = "application/json";
  if (c.ifMatch) headers["If-Match"] = c.ifMatch;
  if (c.ifNew) headers["If-None-Match"] = "*";
  let response: Response;
  try {
    response = await fetch(c.path, {
      method: c.method ?? "GET",
      headers,
      body: c.body === undefined ? undefined : JSON.stringify(c.body),
      signal,
    });
  } catch (thrown) {
    if (signal?.aborted) throw thrown;
    throw new Problem(0, !c.method || c.method === "GET" ? "comet does not respond." : "comet did not respond. It may have executed the request: check before you send it again.");
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

/** problemOf returns the problem of an error response. A rejected login ends the page's session. */
export async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text();
  let body: Record<string, any> = {};
  try {
    body = JSON.parse(text);
  } catch {
    body = { detail: text.slice(0, 300) || response.statusText };
  }
  const { type, title, status, detail, instance, code, request_id, errors, ...members } = body;
  if (response.status === 401 && !response.url.endsWith("/ui/session")) loggedIn.value = false;
  return new Problem(response.status, detail || title || response.statusText || "status " + response.status, code, errors ?? [], request_id ?? response.headers.get("X-Request-Id") ?? "", members);
}

/** call sends a call and returns the JSON of the response, undefined if it has none. */
export async function call<T>(c: Call, signal?: AbortSignal): Promise<T> {
  const response = await request(c, signal);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** curl returns a call as a command for a shell. */
export function curl(c: Call): string {
  const quote = (s: string) => "'" + s.replaceAll("'", `'\\''`) + "'";
  const parts = ["curl", '-H "Authorization: Bearer $COMET_TOKEN"'];
  if (c.method && c.method !== "GET") parts.push("-X " + c.method);
  if (c.ifMatch) parts.push("-H " + quote("If-Match: " + c.ifMatch));
  if (c.ifNew) parts.push("-H 'If-None-Match: *'");
  if (c.body !== undefined) parts.push("--json " + quote(JSON.stringify(c.body)));
  parts.push(quote(location.origin + c.path));
  return parts.join(" ");
}

/** query returns a path with parameters; empty, undefined and false ones are left out. */
export function query(path: string, parameters: Record<string, string | number | boolean | undefined | null>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) q.set(name, String(value));
  }
  const text = q.toString();
  return text ? path + "?" + text : path;
}
