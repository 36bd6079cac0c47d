// The search for tools, with the result and the scores that agents get.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { call, type Call, type Schemas } from "./api";
import { Empty, Facts, Loaded, Panel, Tag } from "./components";
import { count } from "./format";
import { never, useLoad } from "./resource";
import { link, parameter, setParameters } from "./router";
import { Class, ToolsPage } from "./toolparts";

export function ToolSearch() {
  const text = parameter("query");
  const context = parameter("context_tools");
  const flags = parameter("related") + "," + parameter("stubs");
  const body: Schemas["ToolSearchQuery"] = {
    query: text,
    limit: 20,
    include_related: parameter("related") === "yes",
    include_stubs: parameter("stubs") === "yes",
    ...(context && { context_tools: context.split(/[\s,]+/).filter(Boolean) }),
  };
  const search: Call = { method: "POST", path: "/api/v1/tools/search", body };
  const latest = useRef(search);
  latest.current = search;
  const found = useLoad(useCallback((signal: AbortSignal) => (text ? call<Schemas["ToolSearchResult"]>(latest.current, signal) : Promise.resolve(undefined)), [text, context, flags]), never);
  const entered = { query: text, context_tools: context };
  const [draft, setDraft] = useState(entered);
  useEffect(() => setDraft(entered), [text, context]);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setParameters({ query: draft.query.trim(), context_tools: draft.context_tools.trim() }, true);
  };
  return (
    <ToolsPage ready={!found.loading || !text} calls={[search]}>
      <form class="filters" role="search" onSubmit={submit}>
        <input type="search" name="query" aria-label="What the tool is for, in English or French" placeholder="What is the tool for?" value={draft.query} onInput={(e) => setDraft({ ...draft, query: e.currentTarget.value })} />
        <label>
          Tools in use
          <input type="text" name="context_tools" placeholder="filesystem:read_file, …" value={draft.context_tools} onInput={(e) => setDraft({ ...draft, context_tools: e.currentTarget.value })} />
        </label>
        <Flag name="related" text="Add related tools" />
        <Flag name="stubs" text="Signatures" />
        <button class="primary">Search</button>
        <span class="muted">Each search is a tool call that your token pays for.</span>
      </form>
      <Panel title="As agents see it" flush>
        {!text ? (
          <Empty icon="search" title="Describe what a tool must do">
            <span>An agent with your token gets the same result and scores.</span>
          </Empty>
        ) : (
          <Loaded of={found}>{(r) => <Result result={r} />}</Loaded>
        )}
      </Panel>
    </ToolsPage>
  );
}

function Flag({ name, text }: { name: string; text: string }) {
  return (
    <label>
      <input type="checkbox" checked={parameter(name) === "yes"} onChange={(e) => setParameters({ [name]: e.currentTarget.checked ? "yes" : undefined }, true)} />
      {text}
    </label>
  );
}

function Result({ result: { tools, meta } }: { result: Schemas["ToolSearchResult"] }) {
  if (tools.length === 0) return <Empty icon="search" title={`None of ${count(meta.total_tools)} tools matches`} />;
  return (
    <>
      <ol class="matches">
        {tools.map((t) => (
          <li key={t.name}>
            <div class="stack tight">
              <div class="row">
                <a href={link("tools", t.name)}>
                  <strong>{t.name}</strong>
                </a>
                <Class of={t.class} />
                {t.related && <Tag>related</Tag>}
              </div>
              <span class="clamp">{t.description}</span>
              {t.stub && <code class="anywhere">{t.stub}</code>}
              {t.related_tools.length > 0 && (
                <span class="row faint">
                  Often used with
                  {t.related_tools.map((id) => (
                    <a key={id} href={link("tools", id)}>
                      {id}
                    </a>
                  ))}
                </span>
              )}
            </div>
            <Scores of={t} />
          </li>
        ))}
      </ol>
      <div class="meta">
        <Facts
          of={[
            ["Searched", count(meta.total_tools) + ` tools in ${meta.took_ms.toFixed(1)} ms`],
            ["Weight", `text ${meta.alpha.toFixed(2)}, graph ${(1 - meta.alpha).toFixed(2)} (density ${meta.density.toFixed(3)})`],
            ["Embeddings", meta.embeddings],
          ]}
        />
      </div>
    </>
  );
}

function Scores({ of: t }: { of: Schemas["ToolMatch"] }) {
  const rows: [string, number][] = [["Total", t.score], ["Text", t.semantic_score], ["Graph", t.graph_score]];
  return (
    <dl class="scores">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <span class="meter" aria-hidden="true">
              <span class="track">
                <span class="used" style={{ width: Math.min(1, value) * 100 + "%" }} />
              </span>
            </span>
            <span class="number">{value.toFixed(3)}</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}
