// The parts of the page.
import type { IconName } from "./icons";
import { link } from "./router";
import { can, type Scope } from "./session";

export type Section = { id: string; title: string; icon: IconName; key: string; scopes: Scope[] };

/** sections are the parts of the page: each has the key that opens it after "g", and scopes of which a token needs one. */
export const sections: Section[] = [
  { id: "", title: "Overview", icon: "overview", key: "o", scopes: [] },
  { id: "agents", title: "Agents", icon: "agents", key: "a", scopes: ["agents:read"] },
  { id: "tasks", title: "Tasks", icon: "tasks", key: "t", scopes: ["tasks:read", "messages:send"] },
  { id: "workflows", title: "Workflows", icon: "workflows", key: "w", scopes: ["tools:call", "workflows:approve"] },
  { id: "tools", title: "Tools", icon: "tools", key: "l", scopes: ["tools:call"] },
  { id: "webhooks", title: "Webhooks", icon: "webhooks", key: "h", scopes: ["webhooks:write"] },
  { id: "access", title: "Access", icon: "access", key: "c", scopes: [] },
  { id: "events", title: "Events", icon: "events", key: "e", scopes: ["tasks:read", "agents:read", "tools:call"] },
];

/** visible are the sections that the token may see. */
export const visible = () => sections.filter((s) => s.scopes.length === 0 || can(...s.scopes));

/** address returns the address of a section. */
export const address = (s: Section) => (s.id ? link(s.id) : "/ui/");
