// Starts comet with an agent that speaks PROTOCOL_V5, and a receiver of push notifications.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";

// serve starts comet and returns its address, a fetch with a token, and a function that stops it.
export async function serve() {
  const token = randomBytes(24).toString("hex");
  const program = spawn(process.env.COMET, ["serve", "--listen", "127.0.0.1:0", "--v5-listen", "127.0.0.1:0", "--data", join(process.env.SCRATCH, "data"), "--log-level", "warn"], {
    env: {
      PATH: process.env.PATH, HOME: process.env.SCRATCH, COMET_ADMIN_TOKEN: token, COMET_TRANSPORT_V5_SELF_REGISTRATION: "true",
      COMET_WEBHOOKS_ALLOW_NETWORKS: "127.0.0.0/8",
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let printed = "";
  const addresses = await new Promise((resolve, reject) => {
    program.once("exit", () => reject(new Error(`comet has ended: ${printed}`)));
    program.stdout.on("data", (text) => {
      printed += text;
      const found = /listens on (\S+)[\s\S]*PROTOCOL_V5\s+(\S+)\s/.exec(printed);
      if (found) resolve(found);
    });
  });
  const agent = await connectAgent(addresses[2]);
  return {
    url: addresses[1],
    fetch: (url, options = {}) => fetch(url, { ...options, headers: { ...Object.fromEntries(new Headers(options.headers)), authorization: `Bearer ${token}` } }),
    async close() {
      agent.destroy();
      program.removeAllListeners("exit");
      program.kill("SIGTERM");
      if (program.exitCode === null) await once(program, "exit");
      assert.equal(program.exitCode, 0);
    },
  };
}

// connectAgent connects the agent. Tasks whose message id begins with ask- get a question, those with slow- never end, others succeed.
async function connectAgent(address) {
  const [host, port] = address.split(":");
  const socket = connect(Number(port), host);
  const lines = createInterface({ input: socket });
  let number = 0, name = "W1";
  const send = (kind, task, priority, state, session, data) => socket.write(`M${++number}|${name}>O1|${kind}|${task}|${priority}|${state}|-|0|${session}|-|${data}\n`);
  await once(socket, "connect");
  send("J", "T0", "-", "-", "S0", "version=V5;name=tour;caps=custom:tour;concurrency=50");
  await new Promise((resolve, reject) => {
    lines.on("line", (line) => {
      const registered = /registered;id=(W[0-9.]+);/.exec(line);
      if (registered) {
        name = registered[1];
        return resolve();
      }
      const [, , kind, task, priority, , , , session, , ...rest] = line.split("|");
      const id = /message_id="?([^;"]*)/.exec(rest.join("|"))?.[1] ?? "";
      if (kind !== "R" && kind !== "C") return;
      if (id.startsWith("ask-")) send("C", task, priority, "R", session, "question=Which year?");
      else if (!id.startsWith("slow-")) send("S", task, priority, "D", session, "Done by the agent");
    });
    socket.once("close", () => reject(new Error("the agent was not registered")));
  });
  return socket;
}

// receiver starts a receiver of push notifications. until waits for one that meets a condition.
export async function receiver() {
  const got = [], waiting = new Set();
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    got.push({ headers: request.headers, body: JSON.parse(body) });
    response.end();
    for (const check of waiting) check();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}/push`,
    until: (holds) => new Promise((resolve) => {
      const check = () => {
        const found = got.find(holds);
        if (found) {
          waiting.delete(check);
          resolve(found);
        }
      };
      waiting.add(check);
      check();
    }),
    close: () => server.close(),
  };
}
