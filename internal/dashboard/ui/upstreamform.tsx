// The form that adds or changes an MCP server.
import type { Schemas } from "./api";
import { FormDialog, type FieldSpec } from "./form";

const secrets = "Reference secrets as ${NAME} or ${file:/path}; literal secrets are rejected.";

/** ServerForm adds a server, or changes the edited members of one. The API returns neither arguments nor the values of variables
 * and headers, so a form for a change shows only names. */
export function ServerForm(p: { server?: Schemas["UpstreamView"]; etag?: string; close: () => void; done: (id: string) => void }) {
  const u = p.server;
  const kept = (what: string, names: string[] | undefined) => (u ? `Only what you enter changes; null removes ${what}. ${names?.length ? "Set now: " + names.join(", ") + "." : "None is set."} ` : "");
  const fields: FieldSpec[] = [
    ...(u ? [] : [{ name: "id", label: "Id", required: true, hint: "Letters, digits and hyphens." } as FieldSpec]),
    { name: "command", label: "Program", nullable: true, hint: "comet starts it and connects to its standard input and output." },
    { name: "args", label: "Arguments of the program", kind: "json", hint: (u ? "They are not shown. Leave the field empty to keep them; [] removes all. " : "") + 'A list, such as ["-y", "@modelcontextprotocol/server-memory"].' },
    { name: "env", label: "Environment variables", kind: "json", hint: kept("a variable", u?.env) + secrets },
    { name: "cwd", label: "Working directory", hint: u && "It is not shown. Leave the field empty to keep it." },
    { name: "url", label: "Address", nullable: true, hint: "Instead of a program: the URL of a server with Streamable HTTP." },
    { name: "headers", label: "HTTP headers", kind: "json", hint: kept("a header", u?.headers) + secrets },
    { name: "comet", label: "Settings of comet", kind: "json", hint: (u ? "Only what you enter changes; null removes a setting. " : "") + "timeout, bearer, roots, protocol and oauth." },
  ];
  let id = u?.id ?? "";
  return (
    <FormDialog<Schemas["UpstreamSaved"]>
      title={u ? "Edit " + u.id : "Add MCP server"}
      fields={fields}
      initial={u && { command: u.command, url: u.url }}
      intro={u && <p class="notice">Saving restarts the server. Calls in progress will fail.</p>}
      submit={u ? "Save" : "Add server"}
      message={u ? "Server changed. comet is starting it again." : "Server added. comet is starting it."}
      close={p.close}
      done={() => (p.close(), p.done(id))}
      call={({ id: entered, ...body }) => {
        id = u?.id ?? String(entered ?? "");
        return { method: u ? "PATCH" : "PUT", path: "/api/v1/upstreams/" + encodeURIComponent(id), body, ifMatch: p.etag, ifNew: !u };
      }}
    />
  );
}
