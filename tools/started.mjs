// What the verifiers beside this file wait for when they have started comet.

// started resolves with where the server listens.
export function started(server) {
  return new Promise((resolve, reject) => {
    let said = "";
    server.on("error", reject);
    server.on("exit", (code) => reject(new Error(`comet ended with ${code}`)));
    server.stdout.on("data", (text) => {
      const found = /comet listens on (http:\S+) /.exec((said += text));
      if (found) resolve(found[1]);
    });
  });
}
