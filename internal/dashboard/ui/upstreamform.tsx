// The form that adds or replaces an MCP server.
import type { Schemas } from "./api";
import { FormDialog, type FieldSpec } from "./form";

const secrets = "Reference secrets as ${NAME} or ${file:/path}; literal secrets are rejected.";

/** ServerForm puts the entry of a server. The API does not return entries, so that a replacement is complete. */
export function ServerForm(p: { server?: Schemas["UpstreamView"]; etag?: string; close: () => void; done: (id: string) => void }) {
  const u = p.server;
  const fields: FieldSpec[] = [
    ...(u ? [] : [{ name: "id", label: "Id", required: true, hint: "Letters, digits and hyphens." } as FieldSpec]),
    { name: "command", label: "Program", hint: "comet starts it and connects to its standard input and output." },
    { name: "args", label: "Arguments of the program", kind: "json", hint: 'A list, such as ["-y", "@modelcontextprotocol/server-memory"].' },
    { name: "env", label: "Environment variables", kind: "json", hint: secrets },
    { name: "cwd", label: "Working directory" },
    { name: "url", label: "Address", hint: "Instead of a program: the URL of a server with Streamable HTTP." },
    { name: "headers", label: "HTTP headers", kind: "json", hint: secrets },
    { name: "comet", label: "Settings of comet", kind: "json", hint: "timeout, bearer, roots, protocol and oauth." },
  ];
  const names = (list: string[] | undefined) => (list?.length ? Object.fromEntries(list.map((n) => [n, ""])) : undefined);
  let id = u?.id ?? "";
  return (
    <FormDialog<Schemas["UpstreamSaved"]>
      title={u ? "Edit " + u.id : "Add MCP server"}
      fields={fields}
      preset={u && { command: u.command, url: u.url, env: names(u.env), headers: names(u.headers) }}
      intro={u && <p class="notice warn">Saving replaces the whole entry and restarts the server. comet does not return arguments or the values of variables and headers, so enter them again.</p>}
      submit={u ? "Replace" : "Add server"}
      message={u ? "Server replaced." : "Server added. comet is starting it."}
      close={p.close}
      done={() => (p.close(), p.done(id))}
      call={({ id: entered, ...body }) => {
        id = u?.id ?? String(entered ?? "");
        return { method: "PUT", path: "/api/v1/upstreams/" + encodeURIComponent(id), body, ifMatch: p.etag };
      }}
    />
  );
}
