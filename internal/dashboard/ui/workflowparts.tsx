// Components shared by the lists of workflows.
import type { Schemas } from "./api";
import { useGet, useRepeat } from "./resource";
import { can } from "./session";

export type Summary = Schemas["WorkflowSummary"];

/** waitingPath returns the workflows with a pending decision that this token may make. */
export const waitingPath = "/api/v1/workflows?status=paused&decidable=true&limit=20";

/** usePolling reads workflows again every five seconds if the event stream may not report their changes to this token, because
 * other agents pay for them. */
export const usePolling = (reload: () => void, active = true) => useRepeat(reload, active && !can("admin"), 5000);

/** decisions are the decisions that paused workflows wait for. */
export const decisions: Record<string, string> = { layer: "confirm layer", approval: "approve", uncertain: "lost result", budget: "raise budget" };

/** RunName shows the name of the stored workflow that a run executes, or its first steps if there is none, and the run's id. */
export function RunName({ of: w }: { of: Summary }) {
  const graph = useGet<Schemas["WorkflowStateGraph"]>(w.definition ? undefined : `/api/v1/workflows/${w.workflow_id}/graph`);
  const steps = graph.data?.tasks.map((t) => t.id) ?? [];
  const name = w.definition?.name ?? steps.slice(0, 3).join(", ") + (steps.length > 3 ? ", …" : "");
  return (
    <>
      {name} <span class="faint mono">{w.workflow_id}</span>
    </>
  );
}
