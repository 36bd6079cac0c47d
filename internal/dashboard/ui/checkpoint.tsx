// The checkpoint of a paused workflow. A decision covers exactly the bytes that are shown: the page computes their digest
// itself, and replaces what is shown only when the user requests it.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, Problem, type Call, type Schemas } from "./api";
import { Action, AsCurl, Badge, CopyButton, Facts, Loaded, Panel, Tag, Time } from "./components";
import { Dialog } from "./dialog";
import { count, duration, words, type Tone } from "./format";
import { ProblemNotice } from "./problem";
import { at, escaped, indent, readable, sha256 } from "./rawjson";
import type { Pages } from "./resource";
import { notify } from "./toasts";
import { visible } from "./visible";

type View = Schemas["Workflow"];
type Step = Schemas["WorkflowCheckpointStep"];
export type CheckpointRecord = Schemas["WorkflowCheckpointRecord"];

/** Shown is a checkpoint as it is shown: its steps, and their text as the server wrote it. */
export type Shown = { id: string; digest?: string; steps: (Step & { text: string })[]; bytes: string };

/** shownOf returns the open checkpoint of a workflow from the text of the response. */
export function shownOf(view: View, text: string): Shown | undefined {
  if (!view.checkpoint_id || !view.options?.length) return undefined;
  const steps = escaped(at(text, "context", "steps") ?? "[]");
  return {
    id: view.checkpoint_id,
    digest: view.context?.digest,
    steps: (view.context?.steps ?? []).map((s, i) => ({ ...s, text: at(steps, String(i), "arguments") ?? "{}" })),
    bytes: `[${JSON.stringify(view.workflow_id)},${steps}]`,
  };
}

const titles: Record<string, string> = { layer_complete: "A layer is complete", approval_required: "Approval required", uncertain: "Results were lost", budget_exhausted: "The budget is exhausted" };
export const classTone: Record<string, Tone> = { read: "good", write: "warn", destructive: "bad" };

/** whoDecides says which tokens may decide, by the approver of the workflow. */
export const whoDecides = (approver: string | undefined, owners: boolean) =>
  owners || !approver ? "The token that started the workflow, or an administrator" : approver === "human" ? "A person: a token with workflows:approve that is not bound to an agent" : "Another token with workflows:approve";

/** Checkpoint shows the open checkpoint and asks for a decision. */
export function Checkpoint({ view, text, decidable, reload }: { view: View; text: string; decidable: boolean; reload: () => void }) {
  const current = shownOf(view, text)!;
  const [seen, setSeen] = useState(current);
  const [before, setBefore] = useState<Shown>();
  const [decided, setDecided] = useState("");
  const replaced = seen.id !== current.id || seen.digest !== current.digest;
  useEffect(() => {
    if (replaced && decided === seen.id) (setSeen(current), setBefore(undefined)); // the next checkpoint, not another one for the same question
  }, [current.id, current.digest, decided]);
  const own = useDigest(seen.bytes);
  return (
    <Panel title={titles[view.status] ?? words(view.status)} class="checkpoint" actions={<span class="row muted">Expires <Time at={view.expires_at} /></span>}>
      {replaced && decided !== seen.id && (
        <Changes from={seen} to={current} title="This checkpoint was replaced while you looked at it. Nothing was approved.">
          <button class="primary" onClick={() => (setBefore(seen), setSeen(current))}>
            Show the new checkpoint
          </button>
        </Changes>
      )}
      {!replaced && before && <Changes from={before} to={seen} title="Changes since the checkpoint that you saw:" />}
      <Facts of={[["Who may decide", whoDecides(view.approver, view.status === "layer_complete" || view.status === "budget_exhausted")], ["Checkpoint", <code>{seen.id}</code>], ...(view.current_layer ? [["Layer", `${view.current_layer} of ${view.total_layers}; next: ${view.next_layer_preview?.join(", ")}`] as [string, string]] : [])]} />
      {view.status === "layer_complete" && view.layer_results?.map((r) => <LayerResult key={r.taskId} of={r} />)}
      {seen.steps.map((s) => <ShownStep key={s.id} step={s} />)}
      {seen.digest && <Digest of={seen} own={own} />}
      {decidable && !replaced && decided !== seen.id && (view.status === "layer_complete" ? <LayerDecision key={seen.id} view={view} reload={reload} decided={() => setDecided(seen.id)} /> : <Decision key={seen.id} view={view} shown={seen} wrong={own === undefined || Boolean(own && own !== seen.digest)} reload={reload} decided={() => setDecided(seen.id)} />)}
      {!decidable && <p class="muted">Your token may not decide on this checkpoint.</p>}
    </Panel>
  );
}

function Changes(p: { from: Shown; to: Shown; title: string; children?: ComponentChildren }) {
  return (
    <div class="notice warn" role="alert">
      <div>
        <strong>{p.title}</strong>
        <ul class="changes">{compare(p.from, p.to).map((c) => <li key={c}>{c}</li>)}</ul>
      </div>
      {p.children}
    </div>
  );
}

/** compare describes the differences between two checkpoints. */
function compare(old: Shown, now: Shown): string[] {
  const out = now.steps.flatMap((s) => {
    const before = old.steps.find((o) => o.id === s.id);
    if (!before) return [`${s.id} is new`];
    const differs = (["tool", "class", "agent_id", "capability", "code"] as const).filter((m) => before[m] !== s[m]).map((m) => `${s.id}: ${words(m)} was ${before[m] ?? "absent"}, now ${s[m] ?? "absent"}`);
    if (before.text !== s.text) differs.push(`${s.id}: the arguments have changed; they were ${readable(before.text)}`);
    if (differs.length === 0 && before.digest !== s.digest) differs.push(`${s.id}: the texts shown are equal, but the plan, the definition of the tool or the policy of the token has changed`);
    return differs;
  });
  return [...out, ...old.steps.filter((o) => !now.steps.some((s) => s.id === o.id)).map((o) => o.id + " was removed")];
}

function ShownStep({ step }: { step: Step & { text: string } }) {
  const target = visible(step.tool || step.agent_id || step.capability || "");
  return (
    <section class="shown" aria-label={"Step " + step.id}>
      <div class="row spread">
        <span class="row">
          <strong>{visible(step.id)}</strong> <Badge state={step.class} of={classTone[step.class]} /> <Tag>{words(step.type)}</Tag> {target && <code class="anywhere">{target}</code>}
        </span>
        <code class="faint anywhere" title={"Digest of the step: its definition, class, arguments, payer, policies and revision. " + step.digest}>
          {step.digest.slice(0, 16)}…
        </code>
      </div>
      {step.error && <p class="lost">{visible(step.error)}</p>}
      {step.code && <Code label={"Code of " + step.id} text={visible(step.code)} />}
      {!step.code && <Code label={"Arguments of " + step.id} text={readable(indent(step.text))} />}
      {step.code && <details><summary>Arguments, with the results of earlier steps</summary><Code label={"Arguments of " + step.id} text={readable(indent(step.text))} /></details>}
    </section>
  );
}

function LayerResult({ of }: { of: Schemas["WorkflowTaskResult"] }) {
  const text = of.error ?? (of.truncated ? "" : JSON.stringify(of.result, null, 2) ?? "");
  return (
    <section class="shown" aria-label={"Step " + of.taskId}>
      <div class="row">
        <strong>{of.taskId}</strong> <Badge state={of.status} /> <span class="muted">{duration(of.duration_ms)}</span>
      </div>
      {of.truncated ? <p class="muted">The result is long; select the step to see it.</p> : text && <Code label={"Result of " + of.taskId} text={visible(text)} />}
    </section>
  );
}

const Code = ({ label, text }: { label: string; text: string }) => (
  <pre class="code" tabIndex={0} role="region" aria-label={label}>
    {text}
  </pre>
);

/** useDigest returns the digest of a text: undefined until it is computed, null if the browser cannot compute it. */
function useDigest(bytes: string): string | null | undefined {
  const [computed, setComputed] = useState<{ bytes: string; sum: string | null }>();
  useEffect(() => {
    let current = true;
    void sha256(bytes).then((sum) => current && setComputed({ bytes, sum: sum ?? null }));
    return () => void (current = false);
  }, [bytes]);
  return computed?.bytes === bytes ? computed.sum : undefined;
}

/** Digest compares the digest of what is shown with the one that a decision covers. */
function Digest({ of, own }: { of: Shown; own: string | null | undefined }) {
  const state: [Tone, string] = own === undefined ? ["", "computing"] : own === null ? ["warn", "not verified: the browser computes digests only over HTTPS"] : own === of.digest ? ["good", "verified by this page"] : ["bad", "differs from what is shown"];
  return (
    <div class="stack tight" data-digest={own === of.digest ? "verified" : own ? "differs" : "unknown"}>
      <div class="row">
        <span class="muted">Digest</span> <code class="anywhere">{of.digest}</code> <Badge state="digest" of={state[0]} text={state[1]} />
      </div>
      {own && own !== of.digest && <p class="lost">The SHA-256 of what is shown is {own}. The page does not approve it.</p>}
      <details>
        <summary>Bytes that the digest covers ({count(new TextEncoder().encode(of.bytes).length)})</summary>
        <Code label="Bytes that the digest covers" text={visible(of.bytes)} />
        <CopyButton text={of.bytes} label="Copy bytes" />
      </details>
    </div>
  );
}

const decisionCall = (view: View, shown: { id: string }, body: Schemas["CheckpointDecision"]): Call => ({ method: "POST", path: `/api/v1/workflows/${view.workflow_id}/checkpoints/${shown.id}`, body });

const resolutions: [string, string, string][] = [
  ["retry", "Retry", "the steps run again; their effects may occur twice"],
  ["accept", "Accept", "the steps count as successful, with results that you enter"],
  ["skip", "Skip", "the steps and those that depend on them are skipped"],
];

function Decision({ view, shown, wrong, reload, decided }: { view: View; shown: Shown; wrong: boolean; reload: () => void; decided: () => void }) {
  const [feedback, setFeedback] = useState("");
  const [resolution, setResolution] = useState("");
  const [results, setResults] = useState<Record<string, string>>({});
  const [budget, setBudget] = useState(String((view.budget?.total ?? 0) * 2));
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  const uncertain = view.status === "uncertain";
  const raise = view.status === "budget_exhausted";
  const common = { feedback: feedback.trim() || undefined, digest: shown.digest };
  const body = (): Schemas["CheckpointDecision"] => {
    if (raise) return { approved: true, ...common, resolution: "raise", budget: Number(budget) };
    if (!uncertain) return { approved: true, ...common };
    const values = resolution === "accept" ? Object.fromEntries(shown.steps.map((s) => [s.id, parse(s.id, results[s.id] ?? "")])) : undefined;
    return { approved: true, ...common, resolution: resolution as "retry", ...(values && { results: values }) };
  };
  const send = async () => {
    setProblem(undefined);
    setBusy(true);
    try {
      await call(decisionCall(view, shown, body()));
      setAsking(false);
      decided();
      notify("good", raise ? "Budget raised." : uncertain ? "Decision recorded." : "Approved.");
      reload();
    } catch (thrown) {
      const failure = Problem.of(thrown);
      setProblem(failure);
      setAsking(false);
      if (failure.status === 409) reload();
    }
    setBusy(false);
  };
  const label = raise ? "Raise budget" : uncertain ? "Decide" : shown.steps.length === 1 ? "Approve" : `Approve ${shown.steps.length} steps`;
  return (
    <div class="stack tight decision">
      {problem && <ProblemNotice problem={problem} />}
      {uncertain && (
        <fieldset class="stack tight">
          <legend>How to handle the lost results</legend>
          {resolutions.map(([value, name, effect]) => (
            <label class="row" key={value}>
              <input type="radio" name="resolution" value={value} checked={resolution === value} onChange={() => setResolution(value)} /> <strong>{name}</strong> <span class="muted">{effect}</span>
            </label>
          ))}
        </fieldset>
      )}
      {resolution === "accept" && shown.steps.map((s) => (
        <label class="field" key={s.id}>
          <span class="label">Result of {s.id}, as JSON</span>
          <textarea rows={2} spellcheck={false} value={results[s.id] ?? ""} onInput={(e) => setResults({ ...results, [s.id]: e.currentTarget.value })} />
        </label>
      ))}
      {raise && (
        <label class="field narrow">
          <span class="label">New total budget in tokens, now {count(view.budget?.total)}</span>
          <input inputMode="numeric" value={budget} onInput={(e) => setBudget(e.currentTarget.value)} />
        </label>
      )}
      <label class="field">
        <span class="label">Feedback <span class="muted">(stored with the decision)</span></span>
        <textarea class="short" rows={2} maxLength={2000} value={feedback} onInput={(e) => setFeedback(e.currentTarget.value)} />
      </label>
      <div class="row">
        <button class="primary" disabled={busy || wrong || (uncertain && !resolution)} onClick={() => (resolution === "retry" ? setAsking(true) : void send())}>
          {label}
        </button>
        <Action label="Reject" kind="danger" call={() => decisionCall(view, shown, { approved: false, ...common })} question="Reject this checkpoint? The workflow ends and no further step starts. Existing results are kept." message="Rejected." done={() => (decided(), reload())} />
        <AsCurl invalid={failure(body)} calls={[...(failure(body).length ? [] : [decisionCall(view, shown, body())]), decisionCall(view, shown, { approved: false, ...common })]} />
      </div>
      {asking && (
        <Dialog title="Run the steps again?" close={() => setAsking(false)} footer={<><button onClick={() => setAsking(false)}>Go back</button><button class="danger" disabled={busy} onClick={send}>Run again</button></>}>
          <p>The steps {shown.steps.map((s) => s.id).join(", ")} may already have had effects. If they did, the effects occur twice.</p>
        </Dialog>
      )}
    </div>
  );
}

function parse(id: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(0, `The result of ${id} is not valid JSON. A string needs quotes, such as "done".`);
  }
}

/** failure returns why a decision is invalid. */
function failure(body: () => Schemas["CheckpointDecision"]): string[] {
  try {
    body();
    return [];
  } catch (thrown) {
    return [Problem.of(thrown).detail];
  }
}

function LayerDecision({ view, reload, decided }: { view: View; reload: () => void; decided: () => void }) {
  const [reason, setReason] = useState("");
  return (
    <div class="stack tight decision">
      <label class="field">
        <span class="label">Reason <span class="muted">(stored with the checkpoint)</span></span>
        <textarea class="short" rows={2} maxLength={2000} value={reason} onInput={(e) => setReason(e.currentTarget.value)} />
      </label>
      <div class="row">
        <Action label="Continue" kind="primary" call={() => ({ method: "POST", path: `/api/v1/workflows/${view.workflow_id}/continue`, body: { checkpoint_id: view.checkpoint_id, reason: reason.trim() || undefined } })} message="The next layer starts." done={() => (decided(), reload())} />
      </div>
    </div>
  );
}

const recordTone: Record<string, Tone> = { open: "warn", approved: "good", rejected: "bad", stale: "warn", expired: "warn" };

/** Checkpoints lists the decisions on a workflow, newest first. */
export function Checkpoints({ of }: { of: Pages<CheckpointRecord> }) {
  return (
    <Loaded of={of}>
      {(list) => (
        <>
          <ul class="records">{list.map((c) => <Record key={c.checkpoint_id} of={c} />)}</ul>
          {of.more && <div class="more"><button class="quiet" onClick={of.more}>Show more</button></div>}
        </>
      )}
    </Loaded>
  );
}

function Record({ of: c }: { of: CheckpointRecord }) {
  return (
    <li class="stack tight">
      <div class="row">
        <Badge state={c.state} of={recordTone[c.state]} /> <strong>{words(c.pause)}</strong> {c.layer ? <span class="muted">layer {c.layer}</span> : null} {c.resolution && <Tag>{c.resolution}</Tag>}
        <span class="muted">{c.actor && "by " + c.actor}</span> <Time at={c.decided_at ?? c.created_at} />
      </div>
      {c.feedback && <p class="anywhere">{c.feedback}</p>}
      <details>
        <summary>{c.steps.length ? c.steps.map((s) => s.id).join(", ") : "Details"}</summary>
        <Facts of={[["Checkpoint", <code>{c.checkpoint_id}</code>], ["Digest", <code>{c.digest}</code>]]} />
        {c.steps.map((s) => <ShownStep key={s.id} step={{ ...s, text: JSON.stringify(s.arguments) }} />)}
      </details>
    </li>
  );
}
