// Who uses the page, and what the token allows.
import { computed, signal } from "@preact/signals";
import { call, loggedIn, Problem, request, type Schemas } from "./api";

export type Me = Schemas["CallerIdentity"];
export type Scope = "admin" | "agents:read" | "agents:write" | "usage:write" | "webhooks:write" | "messages:send" | "tasks:read" | "tools:call" | "workflows:approve";

export const me = signal<Me | undefined>(undefined);

/** scopes are those of the token; a token with the scope admin has all. */
const scopes = computed(() => new Set<string>(me.value?.token.scopes ?? []));

/** can reports whether the token has one of the scopes. The page leaves out what the token may not see. */
export function can(...wanted: Scope[]): boolean {
  return scopes.value.has("admin") || wanted.some((s) => scopes.value.has(s));
}

/** administers reports whether the token has the scope admin for the whole system. */
export function administers(): boolean {
  return scopes.value.has("admin") && !me.value?.token.agent_id;
}

/** manages reports whether the token can create other tokens and read those below it. */
export const manages = () => can("admin") || Boolean(me.value?.token.agent_id);

/** listens reports whether the token may read the stream of events. */
export const listens = () => can("tasks:read", "tools:call", "agents:read", "agents:write", "workflows:approve");

/** identify reads the token that the browser's login belongs to. */
export async function identify(): Promise<void> {
  me.value = await call<Me>({ path: "/api/v1/me" });
  loggedIn.value = true;
}

/** confirmLogin loads the page again if the browser has another login now. */
export async function confirmLogin(): Promise<void> {
  const now = await call<Me>({ path: "/api/v1/me" });
  if (now.login?.id !== me.value?.login?.id) location.reload();
}

/** logIn exchanges a token or the code of a login link for the browser's login. */
export async function logIn(credentials: { token: string } | { code: string }): Promise<void> {
  await request({ method: "POST", path: "/ui/session", body: credentials });
  await identify();
}

/** logOut ends the browser's login. */
export async function logOut(): Promise<void> {
  try {
    await request({ method: "DELETE", path: "/ui/session" });
  } catch (thrown) {
    if (Problem.of(thrown).status !== 401) throw thrown;
  }
  location.assign("/ui/login"); // removes everything that the page has shown
}
