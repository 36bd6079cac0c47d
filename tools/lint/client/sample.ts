// What a person who uses the generated types would write. It is only compiled: that it
// compiles under strict is the test.
import createClient from "openapi-fetch";

import type { components, paths } from "./comet.js";

type AgentDetail = components["schemas"]["AgentDetail"];

const api = createClient<paths>({
  baseUrl: "http://127.0.0.1:8080",
  headers: { Authorization: "Bearer 0123456789abcdef0123456789abcdef" },
});

/** Names the assistants of a sphere that may still spend something today. */
export async function solvent(sphere: number): Promise<string[]> {
  const { data, error } = await api.GET("/api/v1/agents", {
    params: { query: { sphere_id: sphere, level: 3, active: true } },
  });
  if (error !== undefined) {
    throw new Error(`${error.title}: ${error.detail ?? "no detail"}`);
  }
  return data.agents
    .filter((agent) => agent.token_budget === null || agent.token_budget > 0)
    .map((agent) => agent.name);
}

/** Creates an agent once, however often it is called with the same key. */
export async function hire(key: string): Promise<string> {
  const { data, error, response } = await api.POST("/api/v1/agents", {
    params: { header: { "Idempotency-Key": key } },
    body: { id: "daily-standup-assistant", name: "Daily Standup Assistant", level: 3, frequency_hz: 444 },
  });
  if (error !== undefined) {
    throw new Error((error.errors ?? []).map((e) => `${e.pointer ?? ""} ${e.rule}`).join(", "));
  }
  return response.headers.get("Location") ?? data.id;
}

/** Moves an agent, unless it was changed meanwhile. */
export async function move(agent: AgentDetail, parent: string | null, etag: string): Promise<AgentDetail> {
  const { data, error } = await api.PATCH("/api/v1/agents/{agent_id}", {
    params: { path: { agent_id: agent.id }, header: { "If-Match": etag } },
    body: { parent_id: parent },
  });
  if (error !== undefined) {
    throw new Error(error.title);
  }
  return data;
}

/** A rate, or a dash where nothing was measured. */
export function rate(agent: AgentDetail): string {
  return agent.stats.success_rate?.toFixed(2) ?? "–";
}

type Event =
  | components["schemas"]["AgentCreatedEvent"]
  | components["schemas"]["AgentUpdatedEvent"]
  | components["schemas"]["AgentBudgetWarningEvent"];

/** What a receiver of webhooks does: the type tells what the data is. */
export function headline(event: Event): string {
  switch (event.type) {
    case "agent.created":
      return `${event.data.name} was created by ${event.data.actor}`;
    case "agent.updated":
      return `${event.data.id}: ${event.data.changes.map((change) => change.field).join(", ")}`;
    case "agent.budget_warning":
      return `${event.data.agent_id} has used ${event.data.percent} % of its budget on ${event.data.day}`;
  }
}

// What must not compile.

// @ts-expect-error a draft needs an id, a name, a level and a frequency
export const incomplete: components["schemas"]["AgentDraft"] = { id: "x" };

// @ts-expect-error there are four levels
export const level: components["schemas"]["Level"] = 4;

/** success_rate is null where there is nothing to divide. */
export function careless(agent: AgentDetail): string {
  // @ts-expect-error it may be null
  return agent.stats.success_rate.toFixed(2);
}
