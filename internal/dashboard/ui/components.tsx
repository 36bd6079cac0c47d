// The parts that all views share.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ago, count, mark, moment, short, tone, words, type Tone } from "./format";
import { Icon, type IconName } from "./icons";
import { navigate, parameter, setParameters, address } from "./router";
import { ProblemNotice } from "./problem";
import type { Resource } from "./resource";
import { shown } from "./visible";

export { Action, AsCurl, CopyButton, Json } from "./action";

/** Page is a view. Its name is in data-page, and data-ready says that its first data is shown. */
export function Page(p: { name: string; title: string; crumbs?: [string, string][]; badge?: ComponentChildren; subtitle?: ComponentChildren; actions?: ComponentChildren; ready?: boolean; children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    document.title = shown(p.title) + " – comet";
  }, [p.title]);
  useEffect(() => main.current?.focus({ preventScroll: true }), [p.name]);
  return (
    <main id="main" ref={main} tabIndex={-1} data-page={p.name} data-ready={p.ready === false ? "false" : "true"}>
      <div class="head">
        <div class="titles">
          {p.crumbs && (
            <nav aria-label="Breadcrumb">
              <ol class="crumbs">
                {p.crumbs.map(([text, to]) => (
                  <li key={to}>
                    <a href={to}>{text}</a>
                  </li>
                ))}
              </ol>
            </nav>
          )}
          <div class="line">
            <h1>{p.title}</h1>
            {p.badge}
          </div>
          {p.subtitle && <p class="muted">{p.subtitle}</p>}
        </div>
        {p.actions && <div class="actions">{p.actions}</div>}
      </div>
      {p.children}
    </main>
  );
}

/** Panel is a part of a view with a heading. */
export function Panel(p: { title: string; class?: string; actions?: ComponentChildren; flush?: boolean; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class={"panel " + (p.class ?? "")} aria-labelledby={id}>
      <header>
        <h2 id={id}>{p.title}</h2>
        {p.actions && <div class="actions">{p.actions}</div>}
      </header>
      <div class={"body" + (p.flush ? " flush" : "")}>{p.children}</div>
    </section>
  );
}

/** Loaded shows a resource: first a skeleton, then its content. A failure is shown beside the last content. */
export function Loaded<T>(p: { of: Resource<T>; children: (data: T) => ComponentChildren }) {
  const { data, problem, loading, reload } = p.of;
  return (
    <>
      {problem && <ProblemNotice problem={problem} retry={reload} />}
      {data !== undefined ? p.children(data) : loading && !problem ? <Skeleton /> : null}
    </>
  );
}

export function Skeleton() {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      <i /> <i /> <i />
    </div>
  );
}

/** Empty says that there is nothing to show, and what to do about it. */
export function Empty(p: { icon?: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={p.icon ?? "inbox"} />
      <strong>{p.title}</strong>
      {p.children}
    </div>
  );
}

/** Badge shows a state by text, sign and colour. */
export function Badge({ state, of, text }: { state: string; of?: Tone; text?: string }) {
  const t = of ?? tone(state);
  return (
    <span class={"badge " + t}>
      <span aria-hidden="true">{mark(t)}</span>
      {text ?? words(state)}
    </span>
  );
}

export const Tag = ({ children }: { children: ComponentChildren }) => <span class="tag">{children}</span>;

/** Time shows a moment relative to now, with its date as a tooltip. */
export function Time({ at }: { at: string | undefined | null }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time class="nowrap" dateTime={at} title={moment(at)}>
      {ago(at)}
    </time>
  );
}

/** Budget shows used and reserved tokens of a budget; a null budget is unlimited. */
export function Budget(p: { used: number; reserved?: number; budget: number | null | undefined; label: string }) {
  const total = p.budget ?? 0;
  const part = (n: number) => (total > 0 ? Math.min(100, (n / total) * 100) : n > 0 ? 100 : 0);
  const ratio = total > 0 ? p.used / total : p.used > 0 ? 1 : 0;
  const unlimited = p.budget === null || p.budget === undefined;
  const text = unlimited ? short(p.used) + " used, no limit" : short(p.used) + " of " + short(total) + (p.reserved ? ", " + short(p.reserved) + " reserved" : "");
  return (
    <div class={"meter" + (unlimited ? "" : ratio >= 1 ? " over" : ratio >= 0.8 ? " high" : "")}>
      {!unlimited && (
        <div class="track" role="meter" aria-label={p.label} aria-valuemin={0} aria-valuemax={total} aria-valuenow={Math.min(p.used, total)} aria-valuetext={text}>
          <div class="used" style={{ width: part(p.used) + "%" }} />
          <div class="reserved" style={{ width: Math.min(100 - part(p.used), part(p.reserved ?? 0)) + "%" }} />
        </div>
      )}
      <span class="text" title={count(p.used) + (unlimited ? "" : " of " + count(total)) + " tokens"}>
        {text}
      </span>
    </div>
  );
}

/** Facts is a list of names and values; pairs without a value are left out. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
        .map(([name, value]) => [<dt>{name}</dt>, <dd>{value}</dd>])}
    </dl>
  );
}

export type Column<T> = { title: string; cell: (row: T) => ComponentChildren; number?: boolean };

/** Table is a table whose first column names each row and may link to a view. The keys j and k move between rows, Enter opens one. */
export function Table<T>(p: { label: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; href?: (row: T) => string | undefined; more?: () => void; empty: ComponentChildren }) {
  const more = p.more && (
    <div class="more">
      <button class="quiet" onClick={p.more}>
        Show more
      </button>
    </div>
  );
  if (p.rows.length === 0) return <>{p.empty}{more}</>;
  const keys = (event: KeyboardEvent) => {
    const row = (event.target as Element).closest("tr");
    if (!row || event.target !== row) return;
    const next = { j: "nextElementSibling", ArrowDown: "nextElementSibling", k: "previousElementSibling", ArrowUp: "previousElementSibling" }[event.key] as "nextElementSibling" | undefined;
    if (next) {
      event.preventDefault();
      (row[next] as HTMLElement | null)?.focus();
    } else if (event.key === "Enter" && row.dataset.href) navigate(row.dataset.href);
  };
  return (
    <>
      <div class="table">
        <table aria-label={p.label}>
          <thead>
            <tr>
              {p.columns.map((c) => (
                <th key={c.title} scope="col" class={c.number ? "number" : ""}>
                  {c.title || <span class="visually-hidden">Actions</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody onKeyDown={keys}>
            {p.rows.map((row) => {
              const to = p.href?.(row);
              const open = (event: MouseEvent) => {
                if (to && !(event.target as Element).closest("a, button, input, select, label, dialog") && !getSelection()?.toString()) navigate(to);
              };
              return (
                <tr key={p.id(row)} data-href={to} tabIndex={to ? 0 : undefined} onClick={open}>
                  {p.columns.map((c, i) =>
                    i === 0 ? (
                      <th key={c.title} scope="row">
                        {c.cell(row)}
                      </th>
                    ) : (
                      <td key={c.title} class={c.number ? "number" : ""}>
                        {c.cell(row)}
                      </td>
                    ),
                  )}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {more}
    </>
  );
}

/** useCurrentInView scrolls a list of links sideways so that the current one is visible. */
export function useCurrentInView<E extends HTMLElement>(current: string | undefined) {
  const list = useRef<E>(null);
  useEffect(() => {
    const link = list.current?.querySelector<HTMLElement>("[aria-current]");
    if (link) list.current!.scrollLeft = link.offsetLeft - (list.current!.clientWidth - link.offsetWidth) / 2;
  }, [current]);
  return list;
}

/** Tabs are parts of a view, kept in the query parameter "tab"; the first is the default. */
export function Tabs({ of }: { of: [string, string][] }) {
  const selected = parameter("tab") || of[0]?.[0];
  const to = (id: string) => {
    const url = new URL(address.value, location.origin);
    if (id === of[0]?.[0]) url.searchParams.delete("tab");
    else url.searchParams.set("tab", id);
    return url.pathname + url.search;
  };
  return (
    <nav class="tabs" aria-label="Parts of this view" ref={useCurrentInView<HTMLElement>(selected)}>
      {of.map(([id, title]) => (
        <a key={id} href={to(id)} aria-current={id === selected ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** Filter is a choice that is kept in a query parameter. Each choice is an entry of the browser's history. */
export function Filter(p: { name: string; label: string; options: [string, string][] }) {
  return (
    <label>
      {p.label}
      <select value={parameter(p.name)} onChange={(e) => setParameters({ [p.name]: e.currentTarget.value }, true)}>
        {p.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Search is a text that is kept in a query parameter and applied when typing pauses. When the address changes in another way,
 * the field shows the text of the address. */
export function Search(p: { name: string; label: string; placeholder?: string }) {
  const value = parameter(p.name);
  const [typed, setTyped] = useState<string>();
  const applied = useRef(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (value === applied.current) return;
    clearTimeout(timer.current);
    applied.current = value;
    setTyped(undefined);
  }, [value]);
  const type = (text: string) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      applied.current = text.trim();
      setParameters({ [p.name]: applied.current });
    }, 250);
  };
  return <input type="search" aria-label={p.label} placeholder={p.placeholder ?? p.label} value={typed ?? value} onInput={(e) => type(e.currentTarget.value)} />;
}
