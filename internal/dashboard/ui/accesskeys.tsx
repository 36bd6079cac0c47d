// Keys that agents sign their messages with, and keys that comet signs its own with.
import { useCallback, useState } from "preact/hooks";
import { call, Problem, query, type Schemas } from "./api";
import { Action, AsCurl, Badge, CopyButton, Empty, Loaded, Panel, Search, Table, Tag, Time } from "./components";
import { FormDialog, type FieldSpec } from "./form";
import { about, useGet, useLoad, usePages } from "./resource";
import { link, parameter, setParameters } from "./router";
import { administers } from "./session";
import { Secret } from "./secret";

type Key = Schemas["PublicKeyView"];

export function Keys() {
  const agent = parameter("agent");
  return (
    <>
      {agent ? <AgentKeys key={agent} id={agent} /> : <Choice />}
      {administers() && <ServiceKeys />}
    </>
  );
}

/** Choice finds the agent whose keys are shown. */
function Choice() {
  const found = useGet<Schemas["AgentList"]>(query("/api/v1/agents", { q: parameter("find"), limit: 8 }));
  return (
    <Panel title="Keys of an agent" flush actions={<div class="filters"><Search name="find" label="Find an agent" placeholder="Id or name of an agent" /></div>}>
      <Loaded of={found}>
        {(list) =>
          list.agents.length === 0 ? (
            <Empty icon="search" title="No agent matches" />
          ) : (
            <ul class="found" aria-label="Agents">
              {list.agents.map((a) => (
                <li key={a.id}>
                  <button onClick={() => setParameters({ agent: a.id, find: "" }, true)}>
                    <code>{a.id}</code> <span class="muted truncate">{a.name}</span>
                  </button>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </Panel>
  );
}

function AgentKeys({ id }: { id: string }) {
  return (
    <>
      <div class="row">
        <p>
          Keys of <a href={link("agents", id)}>{id}</a>
        </p>
        <button onClick={() => setParameters({ agent: "" }, true)}>Choose another agent</button>
      </div>
      <PublicKeys id={id} />
      <V5Key id={id} />
    </>
  );
}

const shared: FieldSpec[] = [
  { name: "profile", label: "Signatures cover", kind: "select", options: [["jcs", "the whole message (jcs)"], ["v1", "the members that the protocol selects (v1)"]] },
  { name: "required", label: "Every message must be signed", kind: "checkbox", hint: "Otherwise the agent may also send unsigned messages with its token." },
  { name: "signature_only", label: "Accept a signature instead of a token", kind: "checkbox", hint: "The agent can then submit and execute tasks without a token." },
  { name: "not_after", label: "Expires at", hint: "Such as 2027-01-31T00:00:00Z. Leave empty for no expiry.", nullable: true },
];

function PublicKeys({ id }: { id: string }) {
  const path = `/api/v1/agents/${encodeURIComponent(id)}/keys`;
  const list = usePages<Key>(path, "keys", about("key.", id));
  const [form, setForm] = useState<"pin" | Key>();
  const change = typeof form === "object" ? form : undefined;
  return (
    <Panel
      title="Public keys"
      flush
      actions={
        <>
          <AsCurl calls={[{ path }]} />
          <button class="primary" onClick={() => setForm("pin")}>
            Pin public key
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
            empty={
              <Empty icon="access" title="This agent has no public key">
                <span>comet verifies Genesis messages of the agent with its public key.</span>
              </Empty>
            }
            columns={[
              { title: "Key", cell: (k) => <code title={k.public_key}>{k.key_id}</code> },
              { title: "State", cell: (k) => <Badge state={k.state} /> },
              { title: "Signatures cover", cell: (k) => <Tag>{k.profile}</Tag> },
              { title: "Messages", cell: (k) => (k.required ? "must be signed" : "may be signed") + (k.signature_only ? ", no token needed" : "") },
              { title: "Expires", cell: (k) => (k.revoked_at ? <>revoked <Time at={k.revoked_at} /></> : k.not_after ? <Time at={k.not_after} /> : <span class="faint">never</span>) },
              { title: "Created", cell: (k) => <div class="lines"><Time at={k.created_at} /><span class="faint anywhere">{k.created_by}</span></div> },
              {
                title: "",
                number: true,
                cell: (k) =>
                  k.state === "valid" && (
                    <span class="row end">
                      <button class="quiet" onClick={() => setForm(k)}>
                        Change
                      </button>
                      <Action label="Revoke" kind="danger" call={{ method: "DELETE", path: path + "/" + k.key_id }} question={`Revoke the key ${k.key_id}? Messages signed with it are rejected, and it cannot be pinned again.`} done={list.reload} message="Key revoked." />
                    </span>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
      {form && (
        <FormDialog
          title={change ? "Change key " + change.key_id : "Pin public key"}
          submit={change ? "Save" : "Pin public key"}
          message={change ? "Key changed." : "Key pinned."}
          initial={change}
          preset={{ profile: "jcs" }}
          close={() => setForm(undefined)}
          done={() => (setForm(undefined), list.reload())}
          fields={change ? shared : [{ name: "public_key", label: "Public key", kind: "textarea", required: true, hint: "Ed25519: PEM, base64 or hexadecimal digits." }, ...shared]}
          call={(body) => (change ? { method: "PATCH", path: path + "/" + change.key_id, body } : { method: "POST", path, body })}
        />
      )}
    </Panel>
  );
}

/** V5Key is the secret with which the agent and comet sign messages of PROTOCOL_V5. */
function V5Key({ id }: { id: string }) {
  const path = `/api/v1/agents/${encodeURIComponent(id)}/key`;
  const load = useCallback(
    (signal: AbortSignal) =>
      call<Schemas["AgentKeyView"]>({ path }, signal).then(
        (k) => [k],
        (thrown) => {
          if (Problem.of(thrown).status === 404) return [];
          throw thrown;
        },
      ),
    [path],
  );
  const loaded = useLoad(load, about("key.", id));
  const [issued, setIssued] = useState<string>();
  const some = loaded.data && loaded.data.length > 0; // undefined until it is known
  const done = (k: Schemas["AgentKeyIssued"]) => (setIssued(k.key), loaded.reload());
  return (
    <Panel
      title="Secret for PROTOCOL_V5"
      flush
      actions={
        <>
          <AsCurl calls={[{ path }]} />
          {some ? (
            <Action<Schemas["AgentKeyIssued"]> key="replace" label="Replace" call={{ method: "PUT", path, body: {} }} question={`Issue a new secret for ${id}? The current one stops working at once.`} done={done} message="Secret replaced." />
          ) : (
            some === false && <Action<Schemas["AgentKeyIssued"]> key="issue" label="Issue secret" call={{ method: "PUT", path, body: {} }} done={done} message="Secret issued." />
          )}
        </>
      }
    >
      <Loaded of={loaded}>
        {(rows) => (
          <Table
            label="Secret for PROTOCOL_V5"
            rows={rows}
            id={(k) => k.agent_id}
            empty={<Empty icon="access" title="This agent has no secret" />}
            columns={[
              { title: "Fingerprint", cell: (k) => <code>{k.fingerprint}</code> },
              { title: "Id in messages", cell: (k) => <code>{k.v5_id}</code> },
              { title: "Algorithm", cell: (k) => <Tag>{k.algorithm}</Tag> },
              { title: "Messages", cell: (k) => (k.required ? "must be signed" : "may be signed") },
              { title: "Created", cell: (k) => <div class="lines"><Time at={k.created_at} /><span class="faint anywhere">{k.created_by}</span></div> },
              {
                title: "",
                number: true,
                cell: (k) => (
                  <span class="row end">
                    <Action label={k.required ? "Allow unsigned" : "Require signatures"} kind="quiet" call={{ method: "PATCH", path, body: { required: !k.required } }} question={k.required ? undefined : `Reject messages of ${id} without a valid signature?`} done={loaded.reload} message="Secret changed." />
                    <Action label="Revoke" kind="danger" call={{ method: "DELETE", path }} question={`Revoke the secret of ${id}? Messages signed with it are rejected.`} done={loaded.reload} message="Secret revoked." />
                  </span>
                ),
              },
            ]}
          />
        )}
      </Loaded>
      {issued && <Secret title={"Secret of " + id} name="secret" secret={issued} hint="The agent signs its messages with it." close={() => setIssued(undefined)} />}
    </Panel>
  );
}

function ServiceKeys() {
  const path = "/api/v1/service/keys";
  const keys = useGet<Schemas["ServiceKeyList"]>(path);
  return (
    <Panel
      title="Keys of this server"
      flush
      actions={
        <>
          <AsCurl calls={[{ path }]} />
          <Action label="Rotate" call={{ method: "POST", path: path + "/rotate" }} question="Sign agent cards and messages with a new key? The current private key is erased; its public key stays published for 30 days." done={keys.reload} message="Key rotated." />
        </>
      }
    >
      <Loaded of={keys}>
        {(list) => (
          <Table
            label="Keys of this server"
            rows={list.keys}
            id={(k) => k.key_id}
            empty={<Empty icon="access" title="comet has not signed anything yet" />}
            columns={[
              { title: "Key", cell: (k) => <code>{k.key_id}</code> },
              { title: "State", cell: (k) => (k.retired_at ? <Badge state="retired" of="" /> : <Badge state="valid" text="current" />) },
              { title: "Public key", cell: (k) => <span class="token"><code class="truncate" title={k.public_key}>{k.public_key}</code><CopyButton text={k.public_key} /></span> },
              { title: "Created", cell: (k) => <Time at={k.created_at} /> },
              { title: "Retired", cell: (k) => <Time at={k.retired_at} /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}
