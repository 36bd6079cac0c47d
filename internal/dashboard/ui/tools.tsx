// Tools: MCP servers, the catalogue of their tools, search, policies, calls and the graph of their use.
import type { ComponentType } from "preact";
import { parameter } from "./router";
import { Policies } from "./policy";
import { ToolCalls } from "./tool-calls";
import { Catalogue, ToolPage } from "./tool-catalogue";
import { ToolSearch } from "./tool-search";
import { Servers } from "./tool-servers";
import { ToolGraph } from "./toolgraph";
import { tabs } from "./toolparts";
import { Upstream } from "./upstream";

const views: Record<string, ComponentType> = { servers: Servers, catalogue: Catalogue, search: ToolSearch, policies: Policies, calls: ToolCalls, graph: ToolGraph };

export function Tools() {
  const id = (tabs().find(([id]) => id === parameter("tab")) ?? tabs()[0]!)[0];
  const View = views[id]!;
  return <View key={id} />;
}

/** ToolOrServer shows an MCP server, or one tool if the id has the form server:tool. */
export function ToolOrServer({ id }: { id: string }) {
  return id.includes(":") ? <ToolPage id={id} /> : <Upstream id={id} />;
}
