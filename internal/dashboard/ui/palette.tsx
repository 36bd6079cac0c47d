// The command palette: one search over views, agents, tasks, tools and workflows, opened by ⌘K or Ctrl+K.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { call, Problem, query, type Schemas } from "./api";
import { useModal } from "./dialog";
import { Icon, type IconName } from "./icons";
import { singleKeys, switchSingleKeys } from "./keys";
import { link, navigate } from "./router";
import { can, logOut } from "./session";
import { address, sections, visible } from "./sections";
import { switchTheme } from "./theme";
import { notify } from "./toasts";

const isOpen = signal(false);
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

export const shortcut = isMac ? "⌘K" : "Ctrl K";
export const openPalette = () => (isOpen.value = true);

type Entry = { id: string; title: string; detail?: string; kind: string; icon: IconName; run: () => void };

/** listen handles the shortcuts of the page: the palette, and "g" and a letter for each view. */
export function listen() {
  let g = -Infinity;
  addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (isOpen.value || !document.querySelector("dialog[open]")) isOpen.value = !isOpen.value; // not above another dialog
      return;
    }
    const at = event.target as HTMLElement;
    if (!singleKeys.value || event.metaKey || event.ctrlKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) || at.closest("dialog")) return;
    if (event.key === "/") {
      event.preventDefault();
      isOpen.value = true;
    } else if (event.key === "j" && at === document.body || event.key === "j" && at.id === "main") {
      document.querySelector<HTMLElement>("main tr[tabindex]")?.focus();
    } else if (event.key === "g") {
      g = event.timeStamp;
    } else if (event.timeStamp - g < 1500) {
      const section = sections.find((s) => s.key === event.key);
      if (section && visible().includes(section)) navigate(address(section));
      g = -Infinity;
    }
  });
}

export function Palette() {
  return isOpen.value ? <OpenPalette /> : null;
}

function OpenPalette() {
  const dialog = useModal();
  const [text, setText] = useState("");
  const [result, setResult] = useState<{ of: string; entries: Entry[] }>({ of: "", entries: [] });
  const [selected, setSelected] = useState(0);
  useEffect(() => lists.clear(), []);
  useEffect(() => {
    const wanted = text.trim();
    if (wanted.length < 2) return;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      const lists = await Promise.all(searches().map((s) => s(wanted, stop.signal).catch(() => [] as Entry[])));
      const exact = (e: Entry) => Number(e.title === wanted || e.detail === wanted);
      if (!stop.signal.aborted) setResult({ of: wanted, entries: lists.flat().sort((a, b) => exact(b) - exact(a)) });
    }, 150);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);

  const found = result.of === text.trim() ? result.entries : []; // not those of an earlier text
  const entries = [...commands().filter((e) => matches(e, text)), ...found];
  const at = Math.min(selected, Math.max(entries.length - 1, 0));
  const close = () => (isOpen.value = false);
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    entry.run();
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setSelected((at + step + entries.length) % Math.max(entries.length, 1));
      document.getElementById("palette-" + ((at + step + entries.length) % entries.length))?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(entries[at]);
    }
  };
  return (
    <dialog ref={dialog} data-palette aria-label="Search and commands" onClose={() => dialog.current && close()} onClick={(e) => e.target === dialog.current && close()}>
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={entries.length ? "palette-" + at : undefined}
        aria-label="Search agents, tasks, tools and workflows, or choose a command"
        placeholder="Search agents, tasks, tools, workflows …"
        value={text}
        onInput={(e) => (setText(e.currentTarget.value), setSelected(0))}
        onKeyDown={keys}
        autofocus
      />
      <ul id="palette-list" role="listbox" aria-label="Results">
        {entries.map((e, i) => (
          <li key={e.id} id={"palette-" + i} role="option" aria-selected={i === at} onClick={() => run(e)} onMouseMove={() => i !== at && setSelected(i)}>
            <Icon name={e.icon} />
            <span class="truncate">
              {e.title} {e.detail && <span class="faint">{e.detail}</span>}
            </span>
            <span class="kind">{e.kind}</span>
          </li>
        ))}
      </ul>
      {entries.length === 0 && <p class="empty">{text.trim().length > 1 && result.of !== text.trim() ? "Searching …" : `Nothing matches “${text}”.`}</p>}
    </dialog>
  );
}

const matches = (e: Entry, text: string) => e.title.toLowerCase().includes(text.trim().toLowerCase());

function commands(): Entry[] {
  return [
    ...visible().map((s): Entry => ({ id: "view-" + s.id, title: s.title, kind: "g " + s.key, icon: s.icon, run: () => navigate(address(s)) })),
    { id: "theme", title: "Switch between light and dark", kind: "command", icon: "moon", run: switchTheme },
    { id: "keys", title: `Switch single-key shortcuts ${singleKeys.value ? "off" : "on"}`, kind: "command", icon: "code", run: switchSingleKeys },
    { id: "logout", title: "Log out", kind: "command", icon: "exit", run: () => void logOut().catch((thrown) => notify("bad", Problem.of(thrown).text)) },
    { id: "docs", title: "REST API description", kind: "command", icon: "code", run: () => location.assign("/docs") },
  ];
}

type Find = (text: string, signal: AbortSignal) => Promise<Entry[]>;

/** lists has the lists that the page searches itself, by path, while the palette is open. */
const lists = new Map<string, Promise<any>>();

/** list reads the first page of a list, only once while the palette is open. */
function list<T>(path: string): Promise<T> {
  if (!lists.has(path)) {
    const response = call<T>({ path });
    response.catch(() => lists.delete(path)); // the next search reads it again
    lists.set(path, response);
  }
  return lists.get(path)!;
}

/** has reports whether one of the texts contains the search text. */
const has = (wanted: string, ...texts: (string | undefined)[]) => texts.some((t) => t?.toLowerCase().includes(wanted.toLowerCase()));

/** searches returns the searches that the token allows; each returns a few entries. */
function searches(): Find[] {
  const out: Find[] = [];
  const add = (allowed: boolean, find: Find) => allowed && out.push(find);
  const entry = (section: string, kind: string, icon: IconName, id: string, title: string, detail?: string): Entry => ({ id: section + id, title, detail, kind, icon, run: () => navigate(link(section, id)) });
  add(can("agents:read"), async (text, signal) => {
    const list = await call<Schemas["AgentList"]>({ path: query("/api/v1/agents", { q: text, limit: 6, total: "false" }) }, signal);
    return list.agents.map((a) => entry("agents", "agent", "agents", a.id, a.name, a.id));
  });
  add(can("tasks:read", "messages:send"), async (text, signal) => {
    if (!/^[\w-]{4,}$/.test(text)) return [];
    const list = await call<Schemas["TaskList"]>({ path: query("/api/v1/tasks", { id_prefix: text, limit: 6 }) }, signal);
    return list.tasks.map((t) => entry("tasks", "task", "tasks", t.id, t.id, t.state));
  });
  add(can("tools:call"), async (text) => {
    const { upstreams } = await list<Schemas["UpstreamList"]>("/api/v1/upstreams");
    return upstreams.filter((u) => has(text, u.id, u.server_name)).slice(0, 6).map((u) => entry("tools", "MCP server", "tools", u.id, u.id, u.state));
  });
  add(can("tools:call"), async (text) => {
    const { tools } = await list<Schemas["ToolList"]>("/api/v1/tools?limit=1000"); // a search by meaning is a tool call, which costs tokens
    return tools.filter((t) => has(text, t.id, t.description)).sort((a, b) => Number(has(text, b.id)) - Number(has(text, a.id))).slice(0, 6).map((t) => entry("tools", "tool", "tools", t.id, t.id, t.description));
  });
  add(can("tools:call", "workflows:approve"), async (text) => {
    const { workflows } = await list<Schemas["WorkflowList"]>("/api/v1/workflows?limit=100");
    return workflows.filter((w) => has(text, w.workflow_id, w.definition?.name)).slice(0, 6).map((w) => entry("workflows", "workflow", "workflows", w.workflow_id, w.definition?.name ?? w.workflow_id, [w.definition && w.workflow_id, w.status].filter(Boolean).join(" ")));
  });
  add(can("webhooks:write"), async (text) => {
    const { webhooks } = await list<Schemas["WebhookList"]>("/api/v1/webhooks?limit=100");
    return webhooks.filter((h) => has(text, h.id, h.url, h.description)).slice(0, 6).map((h) => entry("webhooks", "webhook", "webhooks", h.id, h.url, h.id));
  });
  return out;
}
