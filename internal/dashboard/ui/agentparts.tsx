// Components shared by the views of agents.
import type { AgentRow } from "./agenttree";
import { Budget, Tag } from "./components";
import { link } from "./router";

/** levels are the names of the four levels. */
export const levels = ["L0 system", "L1 orchestrator", "L2 agent", "L3 assistant"];

/** Name is a link to an agent, with its id and its type. */
export function Name({ agent }: { agent: AgentRow }) {
  return (
    <span class="row">
      <a href={link("agents", agent.id)}>{agent.name}</a>
      <span class="faint">{agent.id}</span>
      {agent.type && <Tag>{agent.type}</Tag>}
    </span>
  );
}

/** AgentBudget shows the budget of an agent and what it has used today. */
export function AgentBudget({ agent }: { agent: AgentRow }) {
  const u = agent.usage;
  if (!u) return <span class="faint">–</span>;
  const limit = u.token_budget === null || u.token_budget === undefined ? null : u.token_budget + (u.additional_budget ?? 0);
  return <Budget label={"Budget of " + agent.name} budget={limit} used={u.budget_scope === "subtree" ? u.subtree_used_today : u.used_today} />;
}
