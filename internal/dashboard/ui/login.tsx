// The login: a token, or the single-use code of a link.
import { useState } from "preact/hooks";
import { Problem } from "./api";
import { ProblemNotice } from "./problem";

import { logIn } from "./session";
import { Brand } from "./shell";

export function Login({ notice }: { notice?: string }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      await logIn({ token: token.trim() });
    } catch (thrown) {
      setProblem(Problem.of(thrown));
      setBusy(false);
    }
  };
  return (
    <main class="login" id="main" data-page="login" data-ready="true">
      <div class="panel">
        <div class="body">
          <Brand />
          <div class="stack tight">
            <h1>Log in</h1>
            <p class="muted">Use a token of this server, or run <code>comet dashboard</code> in a terminal, which opens this page and logs you in.</p>
          </div>
          {notice && !problem && (
            <div class="notice warn" role="status">
              <div>{notice}</div>
            </div>
          )}
          {problem && <ProblemNotice problem={problem} />}
          <form class="fields" onSubmit={submit}>
            <div class="field">
              <label for="token">Token</label>
              <input id="token" name="token" type="password" autocomplete="current-password" required value={token} onInput={(e) => setToken(e.currentTarget.value)} />
              <span class="hint">On its first start, the server writes the admin token to admin.token in its data folder.</span>
            </div>
            <button class="primary" disabled={busy || !token.trim()}>
              Log in
            </button>
          </form>
        </div>
      </div>
    </main>
  );
}
