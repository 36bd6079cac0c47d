// Runs each tour of the API, a command per argument, against a new server. COMET is the program to start.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { started } from "../started.mjs";

for (const command of process.argv.slice(2)) {
  const data = await mkdtemp(join(tmpdir(), "comet-tour-"));
  const token = randomBytes(16).toString("hex");
  const flags = ["--listen", "127.0.0.1:0", "--data", data, "--log-level", "warn", "--webhooks-allow-networks", "127.0.0.0/8"];
  const comet = spawn(process.env.COMET, ["serve", ...flags], {
    env: { PATH: process.env.PATH, HOME: data, COMET_ADMIN_TOKEN: token },
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const env = { ...process.env, COMET_URL: await started(comet), COMET_TOKEN: token };
    const tour = spawn(command, { env, shell: true, stdio: "inherit", timeout: 120_000 });
    const [code] = await once(tour, "exit");
    if (code !== 0) throw new Error(`${command} ended with ${code}`);
  } finally {
    comet.removeAllListeners("exit");
    comet.kill("SIGTERM");
    if (comet.exitCode === null && comet.signalCode === null) await once(comet, "exit");
    await rm(data, { recursive: true, force: true });
  }
}
