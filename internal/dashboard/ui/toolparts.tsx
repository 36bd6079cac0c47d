// Components shared by the views of tools.
import type { ComponentChildren } from "preact";
import type { Call } from "./api";
import { AsCurl, Badge, Page, Tabs } from "./components";
import { administers } from "./session";

/** tabs are the parts of the view of tools that the token may see. */
export const tabs = (): [string, string][] => [["servers", "Servers"], ["catalogue", "Catalogue"], ["search", "Search"], ...(administers() ? [["policies", "Policies"] as [string, string]] : []), ["calls", "Calls"], ["graph", "Graph"]];

/** ToolsPage is the frame of each tab, with the calls that the tab makes and its own actions. */
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
      <Tabs of={tabs()} />
      {p.children}
    </Page>
  );
}

/** serverOf returns the server of a tool from the tool's id. */
export const serverOf = (id: string) => id.slice(0, Math.max(0, id.indexOf(":")));

/** Class shows what a tool may do. */
export function Class({ of }: { of: string | undefined }) {
  if (!of) return <span class="faint">–</span>;
  return <span class={"badge " + ({ write: "warn", destructive: "bad" }[of] ?? "info")}>{of}</span>;
}

/** Outcome shows how a call ended. */
export const Outcome = ({ of }: { of: string }) => <Badge state={of} of={of === "success" ? "good" : of === "refused" ? "warn" : "bad"} />;
