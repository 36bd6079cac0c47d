// Tools: MCP servers, the catalogue of their tools, search, policies, calls and the graph of their use.
import type { ComponentChildren, ComponentType } from "preact";
import type { Call } from "./api";
import { AsCurl, Badge, Page, Tabs } from "./components";
import { parameter } from "./router";
import { administers } from "./session";
import { ToolCalls } from "./tool-calls";
import { Catalogue, ToolPage } from "./tool-catalogue";
import { ToolSearch } from "./tool-search";
import { Servers } from "./tool-servers";
import { Policies } from "./policy";
import { ToolGraph } from "./toolgraph";
import { Upstream } from "./upstream";

type Part = { id: string; title: string; view: ComponentType; admin?: boolean };

const parts: Part[] = [
  { id: "servers", title: "Servers", view: Servers },
  { id: "catalogue", title: "Catalogue", view: Catalogue },
  { id: "search", title: "Search", view: ToolSearch },
  { id: "policies", title: "Policies", view: Policies, admin: true },
  { id: "calls", title: "Calls", view: ToolCalls },
  { id: "graph", title: "Graph", view: ToolGraph },
];

const shown = () => parts.filter((p) => !p.admin || administers());

export function Tools() {
  const part = shown().find((p) => p.id === parameter("tab")) ?? parts[0]!;
  return <part.view key={part.id} />;
}

/** ToolsPage is the frame of each tab, with the calls that it makes and its own actions. */
export function ToolsPage(p: { ready: boolean; calls: Call[]; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <Page
      name="tools"
      title="Tools"
      ready={p.ready}
      actions={
        <>
          <AsCurl calls={p.calls} />
          {p.actions}
        </>
      }
    >
      <Tabs of={shown().map((s) => [s.id, s.title])} />
      {p.children}
    </Page>
  );
}

/** ToolOrServer shows an MCP server, or one tool if the id has the form server:tool. */
export function ToolOrServer({ id }: { id: string }) {
  return id.includes(":") ? <ToolPage id={id} /> : <Upstream id={id} />;
}

/** serverOf returns the server of a tool's id. */
export const serverOf = (id: string) => id.slice(0, Math.max(0, id.indexOf(":")));

/** Class shows what a tool may do. */
export function Class({ of }: { of: string | undefined }) {
  if (!of) return <span class="faint">–</span>;
  return <span class={"badge " + ({ write: "warn", destructive: "bad" }[of] ?? "info")}>{of}</span>;
}

/** Outcome shows how a call ended. */
export const Outcome = ({ of }: { of: string }) => <Badge state={of} of={of === "success" ? "good" : of === "refused" ? "warn" : "bad"} />;
