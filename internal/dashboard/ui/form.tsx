// Forms show the errors of the API beside the fields that they are about.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Problem, request, type Call, type FieldError } from "./api";
import { AsCurl } from "./components";
import { Dialog, useClosed } from "./dialog";
import { ProblemNotice } from "./problem";
import { notify } from "./toasts";

/** FieldSpec describes a member of the request's body. A "json" field is parsed; an empty one is left out. */
export type FieldSpec = {
  name: string;
  label: string;
  kind?: "text" | "number" | "textarea" | "json" | "select" | "list" | "checkbox" | "choices" | "password";
  hint?: ComponentChildren;
  /** the value, the text and what it means */
  options?: [string, string, string?][];
  required?: boolean;
  fixed?: boolean;
  /** whether null clears the member when an edited field is emptied */
  nullable?: boolean;
};

type Values = Record<string, string | boolean | string[]>;

/** FormDialog sends the fields as JSON. With initial values it sends only what was changed. It keeps what it was opened with:
 * if the object changes meanwhile, the entity tag of that time makes the server refuse the change. */
export function FormDialog<T>(opened: {
  title: string;
  fields: FieldSpec[];
  initial?: Record<string, unknown>;
  preset?: Record<string, unknown>;
  submit: string;
  call: (body: Record<string, unknown>) => Call;
  done: (result: T, response: Response) => void;
  close: () => void;
  intro?: ComponentChildren;
  message?: string;
  /** the result has a secret, which is shown even if the form was closed while the request ran */
  secret?: boolean;
}) {
  const [p, setOpened] = useState(opened);
  const [values, setValues] = useState<Values>(() => Object.fromEntries(p.fields.map((f) => [f.name, toText(f, (p.initial ?? p.preset)?.[f.name])])));
  const [problem, setProblem] = useState<Problem>();
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);
  const closed = useClosed();

  const form = useRef<HTMLFormElement>(null);
  useEffect(() => form.current?.querySelector<HTMLElement>('[aria-invalid="true"], fieldset:has(.error) input')?.focus(), [wrong]);

  /** load loads the new version of the object and keeps the edited fields. */
  const load = () => {
    const text = (of: typeof p, f: FieldSpec) => toText(f, of.initial?.[f.name]);
    setValues(Object.fromEntries(p.fields.map((f) => [f.name, same(values[f.name], text(p, f)) ? text(opened, f) : values[f.name]!])));
    setOpened(opened);
    setProblem(undefined);
  };
  const send = async (event: Event) => {
    event.preventDefault();
    setProblem(undefined);
    setWrong({});
    const { body, failures } = read(p, values);
    if (Object.keys(failures).length > 0) return setWrong(failures);
    setBusy(true);
    try {
      const response = await request(p.call(body));
      const text = await response.text();
      notify("good", p.message ?? "Saved.");
      if (closed.current && !p.secret) return;
      p.done((text ? JSON.parse(text) : undefined) as T, response);
    } catch (thrown) {
      const failure = Problem.of(thrown);
      if (closed.current) return notify("bad", `${p.title}: ${failure.errors.map((e) => e.detail).join(" ") || failure.text}`);
      setProblem(failure);
      setWrong(byField(failure, p.fields));
    }
    setBusy(false);
  };
  const id = useId();
  const draft = read(p, values);
  const invalid = p.fields.filter((f) => draft.failures[f.name]).map((f) => f.label + ": " + draft.failures[f.name]);
  const further = problem?.errors.filter((e) => !wrong[memberOf(e)]) ?? [];
  return (
    <Dialog
      title={p.title}
      close={p.close}
      footer={
        <>
          <AsCurl calls={[p.call(draft.body)]} invalid={invalid} />
          <button type="button" onClick={p.close}>
            Cancel
          </button>
          <button class="primary" form={id} disabled={busy}>
            {p.submit}
          </button>
        </>
      }
    >
      {p.intro}
      {problem && (further.length > 0 || problem.errors.length === 0) && <ProblemNotice problem={problem} errors={further} />}
      {problem?.status === 412 && p.initial && <Conflict ready={opened.call({}).ifMatch !== p.call({}).ifMatch} load={load} />}
      <form ref={form} id={id} class="fields" onSubmit={send} noValidate>
        {p.fields.map((f) => (
          <Field key={f.name} spec={f} value={values[f.name]!} error={wrong[f.name]} change={(value) => setValues({ ...values, [f.name]: value })} />
        ))}
      </form>
    </Dialog>
  );
}

/** Conflict offers to load the new version of an object that was changed while the form was open, once the view has read it. */
const Conflict = ({ ready, load }: { ready: boolean; load: () => void }) => (
  <div class="row">
    <button type="button" disabled={!ready} onClick={load}>
      Load the new version
    </button>
    <span class="hint muted">Nothing was saved. {ready ? "The fields that you edited stay." : "Reading the new version …"}</span>
  </div>
);

/** read returns the body of the request without the invalid fields, and why they are invalid. With initial values, the server
 * decides whether a field may be empty. */
function read(p: { fields: FieldSpec[]; initial?: Record<string, unknown> }, values: Values) {
  const body: Record<string, unknown> = {};
  const failures: Record<string, string> = {};
  for (const f of p.fields) {
    if (p.initial && same(values[f.name], toText(f, p.initial[f.name]))) continue;
    try {
      const value = fromText(f, values[f.name]);
      if (value !== undefined) body[f.name] = value;
      else if (p.initial) body[f.name] = f.nullable ? null : f.kind === "list" ? [] : "";
      else if (f.required) failures[f.name] = "Enter a value.";
    } catch (thrown) {
      failures[f.name] = (thrown as Error).message;
    }
  }
  return { body, failures };
}

function Field({ spec, value, error, change }: { spec: FieldSpec; value: string | boolean | string[]; error?: string; change: (value: string | boolean | string[]) => void }) {
  const id = useId();
  const described = [spec.hint ? id + "-hint" : "", error ? id + "-error" : ""].filter(Boolean).join(" ") || undefined;
  const shared = { id, name: spec.name, "aria-describedby": described, "aria-invalid": error ? ("true" as const) : undefined, "aria-required": spec.required, disabled: spec.fixed };
  const input = (e: { currentTarget: { value: string } }) => change(e.currentTarget.value);
  let control: ComponentChildren;
  switch (spec.kind) {
    case "textarea":
    case "json":
    case "list":
      control = <textarea {...shared} value={value as string} rows={spec.kind === "list" ? 3 : 5} spellcheck={false} onInput={input} />;
      break;
    case "select":
      control = (
        <select {...shared} value={value as string} onChange={input}>
          {spec.options!.map(([v, text]) => (
            <option key={v} value={v}>
              {text}
            </option>
          ))}
        </select>
      );
      break;
    case "checkbox":
      control = <input {...shared} type="checkbox" checked={value as boolean} onChange={(e) => change(e.currentTarget.checked)} />;
      break;
    case "choices":
      return (
        <fieldset class="field" style={{ border: 0, padding: 0, margin: 0 }} aria-describedby={described}>
          <legend class="label" style={{ padding: 0, fontWeight: 550, fontSize: "13px" }}>{spec.label}</legend>
          <div class="choices">
            {spec.options!.map(([v, text, note]) => (
              <label key={v}>
                <input type="checkbox" name={spec.name} value={v} checked={(value as string[]).includes(v)} onChange={(e) => change(e.currentTarget.checked ? [...(value as string[]), v] : (value as string[]).filter((x) => x !== v))} />
                <span>
                  {text}
                  {note && <span class="hint">{note}</span>}
                </span>
              </label>
            ))}
          </div>
          <Notes id={id} spec={spec} error={error} />
        </fieldset>
      );
    default:
      control = <input {...shared} type={(spec.kind === "password" ? "password" : "text") as "text"} inputMode={spec.kind === "number" ? "numeric" : undefined} autocomplete="off" value={value as string} onInput={input} />;
  }
  return (
    <div class="field">
      <label for={id}>
        {spec.label}
        {spec.required && <span class="muted"> (required)</span>}
      </label>
      {control}
      <Notes id={id} spec={spec} error={error} />
    </div>
  );
}

function Notes({ id, spec, error }: { id: string; spec: FieldSpec; error?: string }) {
  return (
    <>
      {spec.hint && (
        <span class="hint" id={id + "-hint"}>
          {spec.hint}
        </span>
      )}
      {error && (
        <span class="error" id={id + "-error"} data-error-for={spec.name}>
          {error}
        </span>
      )}
    </>
  );
}

function toText(f: FieldSpec, value: unknown): string | boolean | string[] {
  if (f.kind === "checkbox") return Boolean(value);
  if (f.kind === "choices") return Array.isArray(value) ? value.map(String) : [];
  if (value === undefined || value === null) return "";
  if (f.kind === "list") return (value as unknown[]).join("\n");
  if (f.kind === "json") return JSON.stringify(value, null, 2);
  return String(value);
}

function fromText(f: FieldSpec, value: string | boolean | string[] | undefined): unknown {
  if (typeof value === "boolean") return value;
  if (Array.isArray(value)) return value.length || f.required ? value : undefined;
  const text = (value ?? "").trim();
  if (f.kind === "list") return text ? text.split(/[\n,]+/).map((s) => s.trim()).filter(Boolean) : f.nullable ? [] : undefined;
  if (text === "") return undefined;
  if (f.kind === "number") {
    if (!/^-?\d[\d_ ]*$/.test(text)) throw new Error("Enter a whole number, such as 25000.");
    return Number(text.replaceAll(/[_ ]/g, ""));
  }
  if (f.kind === "json") {
    try {
      return JSON.parse(text);
    } catch (thrown) {
      throw new Error("Invalid JSON: " + (thrown as Error).message);
    }
  }
  return text;
}

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

/** memberOf returns the member of the body that an error is about, or "" if there is none. */
const memberOf = (e: FieldError) => (e.pointer ?? "").replace(/^#?\//, "").split("/")[0] ?? "";

/** byField assigns the errors of a problem to the fields whose member they point to. */
function byField(problem: Problem, fields: FieldSpec[]): Record<string, string> {
  const out: Record<string, string> = {};
  for (const e of problem.errors) {
    const name = memberOf(e);
    if (fields.some((f) => f.name === name)) out[name] = [out[name], e.detail].filter(Boolean).join(" ");
  }
  return out;
}
