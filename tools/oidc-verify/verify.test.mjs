// comet accepts the access tokens of an OpenID Connect provider of other authors.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Provider from "oidc-provider";
import { started } from "../started.mjs";

const deadline = 60_000; // of every wait, in ms
const audience = "https://comet.example.com";
const other = "https://other.example.com";
const client = { id: "deployer", secret: randomBytes(16).toString("hex") };

// key returns a private key for signatures as a JSON Web Key.
function key(kid) {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...privateKey.export({ format: "jwk" }), kid, alg: "ES256", use: "sig" };
}

// provide returns a provider of JWTs for both audiences by client credentials.
function provide(issuer, signingKey) {
  return new Provider(issuer, {
    clients: [
      {
        client_id: client.id,
        client_secret: client.secret,
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        id_token_signed_response_alg: "ES256",
      },
    ],
    jwks: { keys: [signingKey] },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: "agents:read tools:call comet-admins",
          audience: resource,
          accessTokenTTL: 300,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "ES256" } },
        }),
      },
    },
    extraTokenClaims: () => ({ comet_agent: "nova" }),
  });
}

let provider; // the running http.Server
let issuer;
let comet;
let url;

before(async () => {
  let handle;
  provider = createServer((request, response) => handle(request, response));
  provider.listen(0, "127.0.0.1");
  await once(provider, "listening");
  issuer = `http://127.0.0.1:${provider.address().port}`;
  handle = provide(issuer, key("first")).callback();
  provider.rotate = () => (handle = provide(issuer, key("second")).callback());
  comet = spawn(process.env.COMET, ["serve", "--listen", "127.0.0.1:0", "--data", join(process.env.SCRATCH, "data"), "--log-level", "warn", "--oidc-issuer", issuer, "--oidc-audience", audience], {
    env: {
      PATH: process.env.PATH,
      HOME: process.env.SCRATCH,
      COMET_ADMIN_TOKEN: randomBytes(16).toString("hex"),
      COMET_OIDC_SCOPES: "agents:read,tools:call,admin=comet-admins",
      COMET_OIDC_AGENT_CLAIM: "comet_agent",
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  url = await started(comet);
});

after(async () => {
  comet.kill("SIGTERM");
  if (comet.exitCode === null) await once(comet, "exit");
  provider.close();
  provider.closeAllConnections();
});

// token requests an access token.
async function token(resource, scope) {
  const response = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: { Authorization: `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString("base64")}` },
    body: new URLSearchParams({ grant_type: "client_credentials", resource, scope }),
    signal: AbortSignal.timeout(deadline),
  });
  const body = await response.json();
  assert.equal(response.status, 200, JSON.stringify(body));
  return body.access_token;
}

const get = (path, bearer) => fetch(url + path, { headers: { Authorization: `Bearer ${bearer}` }, signal: AbortSignal.timeout(deadline) });

test("an access token for comet is accepted with its scopes and its agent", async () => {
  const bearer = await token(audience, "agents:read");
  const me = await get("/api/v1/me", bearer);
  assert.equal(me.status, 200, await me.clone().text());
  const body = await me.json();
  assert.equal(body.token.name, `oidc:${client.id}`);
  assert.deepEqual(body.token.scopes, ["agents:read"]);
  assert.equal(body.agent.id, "nova");
  assert.equal((await get("/api/v1/agents", bearer)).status, 200);
  const tokens = async (as) => (await (await get("/api/v1/tokens", as)).json()).tokens.map(({ id }) => id);
  assert.deepEqual(await tokens(bearer), []);
  assert.deepEqual(await tokens(await token(audience, "comet-admins")), ["bootstrap-admin"]);
});

test("an access token for another server is rejected", async () => {
  const response = await get("/api/v1/me", await token(other, "agents:read"));
  assert.equal(response.status, 401);
  assert.match(response.headers.get("WWW-Authenticate"), /error="invalid_token", error_description="the token is for an audience other than/);
});

test("the metadata of the MCP endpoint names the provider", async () => {
  const metadata = await (await fetch(`${url}/.well-known/oauth-protected-resource/mcp`)).json();
  assert.deepEqual(metadata.authorization_servers, [issuer]);
  assert.deepEqual(metadata.scopes_supported, ["tools:call"]);
});

test("a token with a new key is accepted after the provider has replaced its key", async () => {
  provider.rotate();
  const bearer = await token(audience, "agents:read");
  for (const end = Date.now() + deadline; ; await new Promise((next) => setTimeout(next, 500))) {
    const { status } = await get("/api/v1/me", bearer);
    if (status === 200) break;
    assert.ok(Date.now() < end, `the status is still ${status}`);
  }
});
