// Shared by the verifiers of this folder.

// started resolves with the URL of the server.
export function started(server) {
  return new Promise((resolve, reject) => {
    let output = "";
    server.on("error", reject);
    server.on("exit", (code) => reject(new Error(`comet ended with ${code}`)));
    server.stdout.on("data", (text) => {
      const found = /comet listens on (http:\S+) /.exec((output += text));
      if (found) resolve(found[1]);
    });
  });
}
