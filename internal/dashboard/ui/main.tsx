import { effect, signal } from "@preact/signals";
import { render, type ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./app.css";
import "./access.css";
import "./events.css";
import "./tools.css";
import "./webhooks.css";
import "./workflows.css";
import { loggedIn, Problem } from "./api";
import { Empty, Page } from "./components";
import { lazy } from "./lazy";
import { connect, disconnect, state } from "./live";
import { Login } from "./login";
import { listen, Palette } from "./palette";
import { followLinks, navigate, path, staying } from "./router";
import { confirmLogin, identify, listens, logIn, me } from "./session";
import { visible } from "./sections";
import { Shell } from "./shell";
import { theme } from "./theme";
import { notify } from "./toasts";

/** views are the pages by the first part of the path, for a list and for one object. */
const views: Record<string, { list: ComponentType; one?: ComponentType<{ id: string }> }> = {
  "": { list: lazy(() => import("./overview").then((m) => m.Overview)) },
  agents: { list: lazy(() => import("./agents").then((m) => m.Agents)), one: lazy(() => import("./agent").then((m) => m.Agent)) },
  tasks: { list: lazy(() => import("./tasks").then((m) => m.Tasks)), one: lazy(() => import("./task").then((m) => m.Task)) },
  workflows: { list: lazy(() => import("./workflows").then((m) => m.Workflows)), one: lazy(() => import("./workflow").then((m) => m.Workflow)) },
  tools: { list: lazy(() => import("./tools").then((m) => m.Tools)), one: lazy(() => import("./tools").then((m) => m.ToolOrServer)) },
  webhooks: { list: lazy(() => import("./webhooks").then((m) => m.Webhooks)), one: lazy(() => import("./webhook").then((m) => m.Webhook)) },
  access: { list: lazy(() => import("./access").then((m) => m.Access)) },
  events: { list: lazy(() => import("./events").then((m) => m.Events)) },
};

function View() {
  const [section = "", id, ...rest] = path.value.split("/").map(decodeURIComponent);
  const view = visible().some((s) => s.id === section) ? views[section] : undefined;
  if (view && id === undefined) return <view.list key={section} />;
  if (view?.one && id && rest.length === 0) return <view.one key={section + "/" + id} id={id} />;
  return (
    <Page name="missing" title="Not found">
      <Empty icon="search" title="This view does not exist, or your token may not see it.">
        <a href="/ui/">Go to the overview</a>
      </Empty>
    </Page>
  );
}

/** notice is why the login form is shown. */
const notice = signal("");

/** checkInterval is the time in milliseconds between two checks of the login, for tokens that may not read the event stream. */
const checkInterval = 1500;

/** check detects the end of the login. The event stream reports it if the token may read the stream. */
function check(): (() => void) | undefined {
  if (listens()) {
    void connect(me.value?.login?.id ?? "");
    return undefined;
  }
  const timer = setInterval(() => confirmLogin().catch(() => {}), checkInterval);
  return () => clearInterval(timer);
}

function App() {
  const allowed = loggedIn.value === false && staying.value > 0 ? true : loggedIn.value;
  useEffect(() => {
    if (allowed && path.value === "login") navigate("/ui/", true);
    if (!allowed) return disconnect();
    notice.value = "Your login has ended: you logged out, or the token was revoked or has expired.";
    return check();
  }, [allowed]);
  if (allowed === undefined) return null;
  if (!allowed) return <Login notice={notice.value} />;
  return (
    <>
      <Shell>
        <View />
      </Shell>
      <Palette />
    </>
  );
}

/** start identifies the current login, and logs in with the code of a login link. It asks before a link replaces another login:
 * the link may come from another person. */
async function start() {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (code) history.replaceState(null, "", location.pathname);
  try {
    await identify();
  } catch (thrown) {
    const problem = Problem.of(thrown);
    if (problem.status !== 401) notice.value = problem.detail;
    if (!code) loggedIn.value = false;
  }
  const name = me.value?.token.name;
  if (!code || (name && !confirm(`This link logs in with another token. Replace your login as ${name}?`))) return;
  try {
    await logIn({ code });
    if (name) location.reload();
  } catch (thrown) {
    const { detail } = Problem.of(thrown);
    if (name) return notify("bad", detail);
    notice.value = detail;
    loggedIn.value = false;
  }
}

addEventListener("hashchange", () => location.hash.startsWith("#login=") && void start());
effect(() => {
  document.documentElement.dataset.theme = theme();
  document.body.dataset.live = state.value;
});
let before = state.value;
effect(() => {
  if (before === "off" && state.value === "on") confirmLogin().catch(() => {}); // a failure ends the login, or the stream reports it
  before = state.value;
});
followLinks();
listen();
void start();
render(<App />, document.getElementById("app")!);
