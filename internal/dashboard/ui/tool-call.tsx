// Calling a tool with arguments as JSON, and its result as text.
import { useState } from "preact/hooks";
import { call, Problem, type Schemas } from "./api";
import { AsCurl, Badge, Json, Panel } from "./components";
import { Dialog } from "./dialog";
import { duration } from "./format";
import { ProblemNotice } from "./problem";

type Schema = { type?: string | string[]; properties?: Record<string, Schema>; required?: string[]; default?: unknown; examples?: unknown[]; example?: unknown; enum?: unknown[]; const?: unknown; items?: Schema; anyOf?: Schema[]; oneOf?: Schema[]; minimum?: number };

/** exampleOf returns a value of a JSON Schema: its defaults and examples, with the required members of objects. */
export function exampleOf(schema: Schema | undefined, depth = 0): unknown {
  if (!schema || typeof schema !== "object" || depth > 6) return null;
  const given = schema.const ?? schema.default ?? schema.examples?.[0] ?? schema.example ?? schema.enum?.[0];
  if (given !== undefined) return given;
  const choice = schema.anyOf ?? schema.oneOf;
  if (choice?.length) return exampleOf(choice[0], depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : (schema.type ?? (schema.properties && "object"));
  if (type === "object") {
    const names = Object.keys(schema.properties ?? {});
    return Object.fromEntries(names.filter((n) => schema.required?.includes(n)).map((n) => [n, exampleOf(schema.properties![n], depth + 1)]));
  }
  if (type === "array") return schema.items ? [exampleOf(schema.items, depth + 1)] : [];
  return { string: "", integer: schema.minimum ?? 0, number: schema.minimum ?? 0, boolean: false }[type as string] ?? null;
}

type Result = Schemas["ToolResult"] & { took: number };

export function CallForm({ tool }: { tool: Schemas["ToolView"] }) {
  const [text, setText] = useState(() => JSON.stringify(exampleOf(tool.input_schema as Schema) ?? {}, null, 2));
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const [result, setResult] = useState<Result>();
  const [args, invalid] = parsed(text);
  const request = { method: "POST", path: "/api/v1/tools/call", body: { tool: tool.id, arguments: args ?? {} } };
  const send = async () => {
    setAsking(false);
    setBusy(true);
    setProblem(undefined);
    const began = performance.now();
    try {
      setResult({ ...(await call<Schemas["ToolResult"]>(request)), took: performance.now() - began });
    } catch (thrown) {
      setProblem(Problem.of(thrown));
      setResult(undefined);
    }
    setBusy(false);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (invalid || busy) return;
    if (tool.class === "read") void send();
    else setAsking(true);
  };
  return (
    <>
      <Panel title="Call" actions={<AsCurl calls={[request]} invalid={invalid ? ["Arguments: " + invalid] : []} />}>
        <form class="fields" onSubmit={submit}>
          <div class="field">
            <label for="arguments">Arguments (JSON)</label>
            <textarea id="arguments" rows={Math.min(16, Math.max(5, text.split("\n").length))} spellcheck={false} value={text} aria-invalid={invalid ? "true" : undefined} aria-describedby={invalid ? "arguments-error" : undefined} onInput={(e) => setText(e.currentTarget.value)} />
            {invalid && (
              <span class="error" id="arguments-error">
                {invalid}
              </span>
            )}
          </div>
          <div class="row spread">
            <span class="faint">The call is charged and recorded like any other.</span>
            <button class="primary" disabled={busy || Boolean(invalid)}>
              {busy ? "Calling …" : "Call tool"}
            </button>
          </div>
        </form>
        {problem && <ProblemNotice problem={problem} />}
      </Panel>
      {result && <ResultPanel result={result} />}
      {asking && (
        <Dialog
          title={"Call " + tool.id}
          close={() => setAsking(false)}
          footer={
            <>
              <button onClick={() => setAsking(false)}>Cancel</button>
              <button class={tool.class === "destructive" ? "danger" : "primary"} onClick={() => void send()}>
                Call tool
              </button>
            </>
          }
        >
          <p>{tool.class === "destructive" ? "This tool is destructive: a call can delete or overwrite data for good." : "This tool changes data."} It is called with these arguments:</p>
          <Json label="Arguments" value={args} />
        </Dialog>
      )}
    </>
  );
}

function parsed(text: string): [unknown, string] {
  try {
    const value: unknown = JSON.parse(text.trim() || "{}");
    return value && typeof value === "object" && !Array.isArray(value) ? [value, ""] : [undefined, "The arguments must be a JSON object."];
  } catch (thrown) {
    return [undefined, "Invalid JSON: " + (thrown as Error).message];
  }
}

/** ResultPanel shows the result as text; images and other media by their type and size only. */
function ResultPanel({ result: r }: { result: Result }) {
  return (
    <Panel title="Result" actions={<><span class="faint">{duration(r.took)}</span><Badge state={r.is_error ? "error" : "success"} /></>}>
      {r.content.map((block, i) => (
        <Json key={i} label={"Content " + (i + 1)} value={contentText(block)} />
      ))}
      {r.structured_content !== undefined && (
        <details>
          <summary>Structured content</summary>
          <Json label="Structured content" value={r.structured_content} />
        </details>
      )}
    </Panel>
  );
}

function contentText(block: Record<string, unknown>): unknown {
  if (typeof block.text === "string") return block.text;
  if (typeof block.data === "string") return `${block.type} ${block.mimeType ?? ""}, ${block.data.length} characters of base64`;
  return block;
}
