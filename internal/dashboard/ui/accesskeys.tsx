// Keys: those with which agents sign their messages, and those with which comet signs its own.
import { useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { Action, AsCurl, Badge, Empty, Facts, Loaded, Panel, Search, Table, Tag, Time } from "./components";
import { FormDialog } from "./form";
import { kinds, useGet, usePages } from "./resource";
import { parameter, setParameters } from "./router";
import { administers } from "./session";

type Key = Schemas["PublicKeyView"];

export function Keys() {
  const agent = parameter("agent");
  return (
    <>
      <Panel title="Keys of agents">
        <Search name="find" label="Find an agent" placeholder="Find an agent by id or name" />
        {parameter("find") && !agent && <Choice text={parameter("find")} />}
        {agent ? (
          <div class="row">
            <span>
              Keys of <strong>{agent}</strong>
            </span>
            <button class="quiet" onClick={() => setParameters({ agent: "" })}>
              Choose another
            </button>
          </div>
        ) : (
          !parameter("find") && <p class="muted">An agent signs its messages with a key that is registered here.</p>
        )}
      </Panel>
      {agent && <AgentKeys id={agent} />}
      {administers() && <ServiceKeys />}
    </>
  );
}

function Choice({ text }: { text: string }) {
  const found = useGet<Schemas["AgentList"]>(query("/api/v1/agents", { q: text, limit: 10 }));
  return (
    <Loaded of={found}>
      {(list) => (
        <ul class="row">
          {list.agents.map((a) => (
            <li key={a.id}>
              <button onClick={() => setParameters({ agent: a.id })}>{a.id}</button>
            </li>
          ))}
          {list.agents.length === 0 && <li class="muted">No agent matches.</li>}
        </ul>
      )}
    </Loaded>
  );
}

function AgentKeys({ id }: { id: string }) {
  const path = `/api/v1/agents/${encodeURIComponent(id)}/keys`;
  const list = usePages<Key>(path, "keys", kinds("key."));
  const [form, setForm] = useState<"pin" | Key>();
  const change = typeof form === "object" ? form : undefined;
  return (
    <Panel
      title={"Public keys of " + id}
      flush
      actions={
        <>
          <AsCurl calls={[{ path }]} />
          <button class="primary" onClick={() => setForm("pin")}>
            Add key
          </button>
        </>
      }
    >
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Public keys"
            rows={rows}
            id={(k) => k.key_id}
            empty={<Empty icon="access" title="This agent has no key" />}
            columns={[
              { title: "Key", cell: (k) => <code title={k.public_key}>{k.key_id}</code> },
              { title: "State", cell: (k) => <Badge state={k.state} /> },
              { title: "Signatures cover", cell: (k) => <Tag>{k.profile}</Tag> },
              { title: "Messages", cell: (k) => (k.required ? "must be signed" : "may be signed") + (k.signature_only ? ", no token needed" : "") },
              { title: "Expires", cell: (k) => <Time at={k.not_after} /> },
              {
                title: "",
                cell: (k) =>
                  k.state === "valid" && (
                    <span class="row">
                      <button class="quiet" onClick={() => setForm(k)}>
                        Change
                      </button>
                      <Action label="Revoke" kind="danger" call={{ method: "DELETE", path: path + "/" + k.key_id }} question={`Revoke the key ${k.key_id}? Messages that it has signed are rejected.`} done={list.reload} message="The key is revoked." />
                    </span>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
      {form && (
        <FormDialog
          title={change ? "Change key " + change.key_id : "Add key"}
          submit={change ? "Save" : "Add key"}
          initial={change}
          preset={{ profile: "jcs" }}
          close={() => setForm(undefined)}
          done={() => (setForm(undefined), list.reload())}
          fields={[
            ...(change ? [] : [{ name: "public_key", label: "Public key", required: true, hint: "An Ed25519 key: 32 bytes in base64." }]),
            { name: "profile", label: "Signatures cover", kind: "select", options: [["jcs", "the whole message (jcs)"], ["v1", "some members (v1)"]] },
            { name: "required", label: "Every message must be signed", kind: "checkbox" },
            { name: "signature_only", label: "A signature replaces a token", kind: "checkbox" },
            { name: "not_after", label: "Expires at", hint: "Such as 2027-01-31T00:00:00Z; by default never.", nullable: true },
          ]}
          call={(body) => (change ? { method: "PATCH", path: path + "/" + change.key_id, body } : { method: "POST", path, body })}
        />
      )}
    </Panel>
  );
}

function ServiceKeys() {
  const keys = useGet<Schemas["ServiceKeyList"]>("/api/v1/service/keys", kinds("key."));
  return (
    <Panel
      title="Keys of this server"
      actions={
        <>
          <AsCurl calls={[{ path: "/api/v1/service/keys" }]} />
          <Action label="Rotate" call={{ method: "POST", path: "/api/v1/service/keys/rotate" }} question="Sign with a new key from now on? The old key stays published until its signatures have expired." done={keys.reload} message="comet signs with a new key." />
        </>
      }
    >
      <Loaded of={keys}>
        {(list) => (
          <>
            {list.keys.map((k) => (
              <Facts key={k.key_id} of={[["Key", <code>{k.key_id}</code>], ["Public key", <code>{k.public_key}</code>], ["Created", <Time at={k.created_at} />], ["Retired", k.retired_at && <Time at={k.retired_at} />]]} />
            ))}
          </>
        )}
      </Loaded>
    </Panel>
  );
}
