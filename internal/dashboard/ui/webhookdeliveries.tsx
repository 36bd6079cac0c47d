// The deliveries of a webhook with their attempts, and redelivery.
import { useEffect, useMemo, useState } from "preact/hooks";
import { call, Problem, query, type Schemas } from "./api";
import { Action, AsCurl, Badge, CopyButton, Empty, Facts, Filter, Json, Loaded, Panel, Table, Time } from "./components";
import { Dialog } from "./dialog";
import { count, duration, moment, now } from "./format";
import { onEvents } from "./live";
import { ProblemNotice } from "./problem";
import { kinds, useGet, usePages, useRepeat } from "./resource";
import { address, parameter, setParameters } from "./router";
import { notify } from "./toasts";

type Item = Schemas["Delivery"];

const statuses: [string, string][] = [["", "Any"], ["pending", "Pending"], ["succeeded", "Succeeded"], ["dead", "Dead"]];
const delivered = kinds("agent.", "workflow.", "schedule.", "webhook.", "publication.");

/** soon reports whether a delivery is about to be attempted. */
const soon = (d: Item) => d.status === "pending" && (!d.next_attempt_at || Date.parse(d.next_attempt_at) < now.value + 5000);

/** useBusy is true for some seconds after an event, in which its delivery is created and ends. */
function useBusy(): boolean {
  const [last, setLast] = useState(0);
  useEffect(() => onEvents((events) => events.some(delivered) && setLast(Date.now())), []);
  return now.value - last < 5000;
}

export function Deliveries({ path, ordered, changed }: { path: string; ordered: boolean; changed: () => void }) {
  const list = usePages<Item>(query(path + "/deliveries", { status: parameter("status"), limit: 50 }), "deliveries", delivered);
  const [many, setMany] = useState(false);
  useRepeat(list.reload, useBusy() || Boolean(list.data?.some(soon)));
  const again = () => (list.reload(), changed());
  const at = (id: string) => query(address.value.split("?")[0]!, { status: parameter("status"), delivery: id });
  return (
    <Panel
      title="Deliveries"
      flush
      actions={
        <div class="filters">
          <Filter name="status" label="Status" options={statuses} />
          <button onClick={() => setMany(true)}>Redeliver several</button>
        </div>
      }
    >
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Deliveries"
            rows={rows}
            id={(d) => d.id}
            href={(d) => at(d.id)}
            more={list.more}
            empty={<Empty icon="webhooks" title={parameter("status") ? "No delivery has this status" : "No delivery yet"} />}
            columns={[
              { title: "Event", cell: (d) => <a href={at(d.id)}>{d.event}</a> },
              { title: "Status", cell: (d) => <Badge state={d.status} /> },
              { title: "Attempts", number: true, cell: (d) => count(d.attempt_count) },
              { title: "Next attempt", cell: (d) => <Next of={d} ordered={ordered} /> },
              { title: "About", cell: (d) => <span class="truncate" title={d.key}>{d.key}</span> },
              { title: "Event time", cell: (d) => <Time at={d.event_at} /> },
              { title: "", number: true, cell: (d) => d.status !== "pending" && <Redeliver path={path} id={d.id} done={again} /> },
            ]}
          />
        )}
      </Loaded>
      {many && <Redelivery path={path} close={() => setMany(false)} done={again} />}
      {parameter("delivery") && <Delivery key={parameter("delivery")} path={path} id={parameter("delivery")} ordered={ordered} done={again} />}
    </Panel>
  );
}

function Next({ of: d, ordered }: { of: Item; ordered: boolean }) {
  if (d.status === "pending" && !d.next_attempt_at) return <span class="faint">{ordered ? "after an earlier event" : "now"}</span>;
  return <Time at={d.next_attempt_at} />;
}

function Redeliver({ path, id, done }: { path: string; id: string; done: () => void }) {
  return <Action label="Redeliver" kind="quiet" call={{ method: "POST", path: `${path}/deliveries/${id}/redeliver` }} done={done} message="Redelivery started." />;
}

function Delivery({ path, id, ordered, done }: { path: string; id: string; ordered: boolean; done: () => void }) {
  const own = `${path}/deliveries/${encodeURIComponent(id)}`;
  const delivery = useGet<Schemas["DeliveryDetail"]>(own);
  const d = delivery.data;
  useRepeat(delivery.reload, Boolean(d && soon(d)), 1000);
  return (
    <Dialog
      title={d ? d.event : "Delivery"}
      wide
      close={() => setParameters({ delivery: "" })}
      footer={
        <>
          <AsCurl calls={[{ path: own }]} />
          {d && d.status !== "pending" && <Redeliver path={path} id={id} done={() => (delivery.reload(), done())} />}
        </>
      }
    >
      <Loaded of={delivery}>
        {(d) => (
          <>
            <Facts
              of={[
                ["Status", <Badge state={d.status} />],
                ["About", d.key],
                ["Event", <>{moment(d.event_at)} <code class="faint">{d.event_id}</code></>],
                ["Next attempt", d.status === "pending" && <Next of={d} ordered={ordered} />],
                ["Ended", d.ended_at && moment(d.ended_at)],
              ]}
            />
            <h3>Attempts</h3>
            {d.attempts.length === 0 ? <p class="muted">No attempt yet.</p> : <Attempts of={d.attempts} />}
            <div class="row spread">
              <h3>Payload</h3>
              <CopyButton text={JSON.stringify(d.payload)} label="Copy payload" />
            </div>
            <Json label="Payload" value={d.payload} />
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

/** Attempts lists the attempts of a delivery, the newest first. */
function Attempts({ of }: { of: Schemas["DeliveryAttempt"][] }) {
  return (
    <ol class="attempts" reversed>
      {[...of].reverse().map((a) => (
        <li key={a.attempt} class={a.error ? "failed" : "succeeded"}>
          <span class="row">
            <strong>{count(a.attempt)}</strong>
            {a.status ? <Badge state={String(a.status)} of={a.error ? "bad" : "good"} /> : <Badge state="failed" text="no response" />}
            <span class="faint">
              {moment(a.at)} · {duration(a.duration_ms)}
            </span>
          </span>
          {a.error && <span class="anywhere">{a.error}</span>}
          {a.response_excerpt && <Json label={"Beginning of the response to attempt " + a.attempt} value={a.response_excerpt} />}
        </li>
      ))}
    </ol>
  );
}

const periods: [string, string][] = [["1", "hour"], ["24", "24 hours"], ["168", "7 days"], ["720", "30 days"]];
/** counted is how many deliveries are counted before the page says "or more". */
const counted = 1000;

/** Redelivery sends the deliveries of a period again: the dead ones, and others if wanted. */
function Redelivery({ path, close, done }: { path: string; close: () => void; done: () => void }) {
  const [hours, setHours] = useState("24");
  const [succeeded, setSucceeded] = useState(false);
  const [missed, setMissed] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const since = useMemo(() => new Date(Date.now() - Number(hours) * 3_600_000).toISOString().slice(0, 19) + "Z", [hours]);
  const dead = useGet<Schemas["DeliveryList"]>(query(path + "/deliveries", { status: "dead", since, limit: counted }));
  const well = useGet<Schemas["DeliveryList"]>(succeeded ? query(path + "/deliveries", { status: "succeeded", since, limit: counted }) : undefined);
  const request = { method: "POST", path: path + "/redeliver", body: { since, include_succeeded: succeeded, include_missed: missed } };
  const send = async () => {
    setBusy(true);
    try {
      const r = await call<Schemas["RedeliveryResult"]>(request);
      notify("good", r.redelivered === 1 ? "Redelivery of 1 event started." : `Redelivery of ${count(r.redelivered)} events started.`);
      done();
      close();
    } catch (thrown) {
      setProblem(Problem.of(thrown));
    }
    setBusy(false);
  };
  const number = (l?: Schemas["DeliveryList"]) => (l ? count(l.deliveries.filter((d) => d.event !== "webhook.test").length) + (l.next_cursor ? " or more" : "") : "…");
  return (
    <Dialog
      title="Redeliver several"
      close={close}
      footer={
        <>
          <AsCurl calls={[request]} />
          <button onClick={close}>Cancel</button>
          <button class="primary" disabled={busy} onClick={send}>
            Redeliver
          </button>
        </>
      }
    >
      {problem && <ProblemNotice problem={problem} />}
      <div class="field">
        <label for="redeliver-period">Deliveries in the last</label>
        <select id="redeliver-period" value={hours} onChange={(e) => setHours(e.currentTarget.value)}>
          {periods.map(([h, text]) => (
            <option key={h} value={h}>
              {text}
            </option>
          ))}
        </select>
      </div>
      <div class="choices">
        <label>
          <input type="checkbox" checked disabled /> <span>dead: {number(dead.data)}</span>
        </label>
        <label>
          <input type="checkbox" checked={succeeded} onChange={(e) => setSucceeded(e.currentTarget.checked)} /> <span>succeeded{succeeded && ": " + number(well.data)}</span>
        </label>
        <label>
          <input type="checkbox" checked={missed} onChange={(e) => setMissed(e.currentTarget.checked)} /> <span>events that the webhook missed</span>
        </label>
      </div>
      <p class="muted">Each event keeps its id and gets a full set of retries. Test events are excluded.</p>
    </Dialog>
  );
}
