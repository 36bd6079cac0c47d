// The editor of a token's tool policy, and the simulator of the policy that is being edited.
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";
import { call, Problem, request, type Call, type Schemas } from "./api";
import { Action, AsCurl, Badge, Empty, Loaded, Panel, Table } from "./components";
import { count } from "./format";
import { Icon } from "./icons";
import { ProblemNotice } from "./problem";
import { useLoad } from "./resource";
import { link } from "./router";
import { notify } from "./toasts";
import { Class } from "./toolparts";

/** Stored is the policy of a token as it was read, with its entity tag. */
export type Stored = { policy?: Policy; etag?: string };

export type Policy = Schemas["ToolPolicy"];
type Rule = { tool: string; args: string };
type Draft = { allow: Rule[]; deny: Rule[]; classes: string[] };
type ClassName = "read" | "write" | "destructive";

const rules = (list: Schemas["ToolRule"][] | undefined): Rule[] => (list ?? []).map((r) => ({ tool: r.tool, args: r.arguments && Object.keys(r.arguments).length ? JSON.stringify(r.arguments) : "" }));

/** policyOf returns the policy of a draft; rules without a pattern are left out. It returns undefined if arguments are invalid. */
function policyOf(d: Draft): Policy | undefined {
  if ([...d.allow, ...d.deny].some((r) => fault(r.args))) return undefined;
  const list = (of: Rule[]) => of.filter((r) => r.tool.trim()).map((r) => ({ tool: r.tool.trim(), ...(r.args.trim() && { arguments: JSON.parse(r.args) as Record<string, string> }) }));
  return { allow: list(d.allow), deny: list(d.deny), classes: d.classes as ClassName[] };
}

const draftOf = ({ policy }: Stored): Draft => ({ allow: rules(policy?.allow), deny: rules(policy?.deny), classes: policy?.classes ?? [] });

export function PolicyEditor({ id, name, stored, path, reload }: { id: string; name: string; stored: Stored; path: string; reload: () => void }) {
  const [base, setBase] = useState(stored); // the policy that the draft changes
  const [draft, setDraft] = useState(() => draftOf(stored));
  const next = useRef<"keep" | "discard">(undefined); // what happens to the draft when the policy has been read after an action
  useEffect(() => {
    if (!next.current) return; // another request changed the policy: the server refuses to save
    if (next.current === "discard") setDraft(draftOf(stored));
    next.current = undefined;
    setBase(stored);
    setProblem(undefined);
    setBusy(false);
  }, [stored]);
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false); // until the saved policy has been read: its entity tag is needed for the next one
  const policy = policyOf(draft);
  const save: Call = { method: "PUT", path, body: policy, ifMatch: base.etag, ifNew: !base.policy };
  const changed = !policy || JSON.stringify(policy) !== JSON.stringify(policyOf(draftOf(base)));
  const load = () => {
    next.current = "discard";
    setBusy(true);
    reload();
  };
  const send = async (event: Event) => {
    event.preventDefault();
    if (busy) return;
    setProblem(undefined);
    setBusy(true);
    try {
      await request(save);
      notify("good", "Policy saved.");
      next.current = "keep";
      reload();
    } catch (thrown) {
      setProblem(Problem.of(thrown));
      setBusy(false);
    }
  };
  return (
    <>
      <Panel title={"Policy of " + name} actions={policy && <AsCurl calls={[save]} />}>
        {!base.policy && <p class="muted">This token has no policy: it may call every tool.</p>}
        {problem && <ProblemNotice problem={problem} />}
        {problem?.status === 412 && <div class="row"><button type="button" onClick={load}>Load the new version</button><span class="hint muted">Nothing was saved.</span></div>}
        <form class="fields" onSubmit={send}>
          <Rules title="Allow" hint="No rule: every tool." of={draft.allow} change={(allow) => setDraft({ ...draft, allow })} />
          <Rules title="Deny" hint="Takes precedence over the rules above." of={draft.deny} change={(deny) => setDraft({ ...draft, deny })} />
          <fieldset class="rules">
            <legend>
              Classes <span class="hint">None selected: every class.</span>
            </legend>
            <div class="row">
              {["read", "write", "destructive"].map((c) => (
                <label class="row" key={c}>
                  <input type="checkbox" checked={draft.classes.includes(c)} onChange={(e) => setDraft({ ...draft, classes: e.currentTarget.checked ? [...draft.classes, c] : draft.classes.filter((x) => x !== c) })} />
                  {c}
                </label>
              ))}
            </div>
          </fieldset>
          <div class="row">
            <button class="primary" disabled={busy || !policy || (!changed && Boolean(base.policy))}>
              {base.policy ? "Save policy" : "Set policy"}
            </button>
            {base.policy && <Action kind="danger" label="Delete policy" call={{ method: "DELETE", path, ifMatch: base.etag }} question={`Delete the policy of ${name}? The token may then call every tool.`} done={load} message="Policy deleted." disabled={busy} />}
          </div>
        </form>
      </Panel>
      <Simulator id={id} policy={policy} changed={changed} />
    </>
  );
}

function Rules({ title, hint, of, change }: { title: string; hint: string; of: Rule[]; change: (to: Rule[]) => void }) {
  const id = useId();
  const set = (i: number, part: Partial<Rule>) => change(of.map((r, k) => (k === i ? { ...r, ...part } : r)));
  return (
    <fieldset class="rules">
      <legend>
        {title} <span class="hint">{hint}</span>
      </legend>
      {of.map((r, i) => (
        <div class="rule" key={i}>
          <input class="mono" aria-label={`${title} rule ${i + 1}: tool`} placeholder="server:tool, * and ?" value={r.tool} onInput={(e) => set(i, { tool: e.currentTarget.value })} />
          <input class="mono" aria-label={`${title} rule ${i + 1}: arguments as JSON`} placeholder={'any arguments, or {"path": "/srv/*"}'} value={r.args} aria-invalid={fault(r.args) ? "true" : undefined} aria-describedby={fault(r.args) && id + i} onInput={(e) => set(i, { args: e.currentTarget.value })} />
          <button type="button" class="quiet" aria-label={`Remove ${title.toLowerCase()} rule ${i + 1}`} onClick={() => change(of.filter((_, k) => k !== i))}>
            <Icon name="close" />
          </button>
          {fault(r.args) && (
            <span class="error" id={id + i}>
              {fault(r.args)}
            </span>
          )}
        </div>
      ))}
      <button type="button" class="quiet" onClick={() => change([...of, { tool: "", args: "" }])}>
        <Icon name="plus" /> Add rule
      </button>
    </fieldset>
  );
}

/** fault returns why the arguments of a rule are invalid, or "" if they are valid. */
function fault(text: string): string {
  if (!text.trim()) return "";
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? "" : "The arguments must be a JSON object.";
  } catch (thrown) {
    return "Invalid JSON: " + (thrown as Error).message;
  }
}

type Verdict = Schemas["ToolVerdict"];

/** useDelayed returns a value after it has not changed for ms milliseconds. */
function useDelayed<T>(value: T, ms = 400): T {
  const [delayed, setDelayed] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return delayed;
}

/** Simulator asks the server what the policy that is being edited would allow, before it is saved. */
function Simulator({ id, policy, changed }: { id: string; policy?: Policy; changed: boolean }) {
  const [on, setOn] = useState(false);
  const [only, setOnly] = useState<"" | "no" | "yes">("");
  const path = `/api/v1/tokens/${encodeURIComponent(id)}/tool-policy/simulate`;
  const body = useDelayed(policy && JSON.stringify(changed ? { policy } : {}));
  const verdicts = useLoad(
    useCallback(async (signal: AbortSignal) => (on && body ? (await call<Schemas["ToolVerdicts"]>({ method: "POST", path, body: JSON.parse(body) }, signal)).tools : undefined), [on, path, body]),
  );
  const rows = verdicts.data ?? [];
  const total = rows.filter((v) => v.callable).length;
  return (
    <Panel
      title="Simulator"
      flush
      actions={
        on && policy ? (
          <>
            <AsCurl calls={[{ method: "POST", path, body: changed ? { policy } : {} }]} />
            <div class="segments" role="group" aria-label="Tools shown">
              {([["", "All"], ["yes", "Allowed"], ["no", "Denied"]] as const).map(([value, text]) => (
                <button key={value} type="button" aria-pressed={only === value} onClick={() => setOnly(value)}>
                  {text}
                </button>
              ))}
            </div>
          </>
        ) : on ? null : (
          <button onClick={() => setOn(true)}>Simulate</button>
        )
      }
    >
      {!on ? (
        <Empty icon="tools" title="Which tools may the token call?">
          <span>The simulation includes unsaved changes.</span>
        </Empty>
      ) : !policy ? (
        <Empty icon="warning" title="The policy is invalid">
          <span>Correct the arguments of its rules.</span>
        </Empty>
      ) : (
        <Loaded of={verdicts}>
          {() => (
            <>
              <p class="muted summary" aria-live="polite">
                {count(total)} of {count(rows.length)} tools are allowed{changed ? " with the unsaved policy" : ""}.
              </p>
              <div class="scroll" tabIndex={0} role="region" aria-label="Simulated tools">
                <Table
                  label="Simulated tools"
                  rows={rows.filter((v) => !only || v.callable === (only === "yes"))}
                  id={(v) => v.id}
                  empty={<Empty icon="tools" title="No tool" />}
                  columns={[
                    { title: "Tool", cell: (v) => <a href={link("tools", v.id)}>{v.id}</a> },
                    { title: "Calls", cell: (v) => <Badge state={v.callable ? "allowed" : "denied"} of={v.callable ? "good" : "bad"} /> },
                    { title: "Class", cell: (v) => <Class of={v.class} /> },
                    { title: "Listed", cell: (v) => (v.listed ? "yes" : "no") },
                    { title: "Why", cell: (v) => <Why verdict={v} /> },
                  ]}
                />
              </div>
            </>
          )}
        </Loaded>
      )}
    </Panel>
  );
}

function Why({ verdict: v }: { verdict: Verdict }) {
  return (
    <span class="row">
      {v.reason && <span>{v.reason}</span>}
      {v.rule && <code>{v.rule}</code>}
    </span>
  );
}
