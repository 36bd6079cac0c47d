// An OAuth provider and an MCP server that accepts its tokens, both for the tests of this folder.
import { once } from "node:events";
import { createServer } from "node:http";
import * as jose from "jose";
import { Provider } from "oidc-provider";

const listen = async (server) => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}`;
};

// startProvider starts a provider with dynamic registration, whose access tokens are JSON Web Tokens for
// the resource and live for lifetime seconds. Its refresh tokens are valid once. Clients may also be documents,
// which it requests at the addresses that locate returns for their URLs.
export async function startProvider(resource, lifetime, locate) {
  const server = createServer();
  const issuer = await listen(server);
  const tokens = [];
  const registered = [];
  const provider = new Provider(issuer, {
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, indicator) => {
          if (indicator !== resource) throw new Error("unknown resource");
          return { scope: "notes:read notes:write", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: lifetime };
        },
      },
    },
    fetch: (address, options) => fetch(locate(String(address)), { ...options, dispatcher: undefined }), // its dispatcher rejects local addresses
    scopes: ["openid", "offline_access", "notes:read", "notes:write"],
    rotateRefreshToken: true,
    cookies: { keys: ["for tests only"] },
    ttl: { Interaction: 600, Grant: 3600, Session: 3600, AuthorizationCode: 60, RefreshToken: 3600, IdToken: 3600 },
  });
  provider.on("refresh_token.saved", (token) => tokens.push(token));
  provider.on("registration_create.success", (_, client) => registered.push(client.clientId));
  server.on("request", provider.callback());
  return { issuer, registered, stop: () => server.close(), revoke: async () => Promise.all(tokens.map((token) => token.destroy())) };
}

// startServer starts an MCP server with two tools, of which one requires the scope notes:write, and whose authorization server is set later.
export async function startServer() {
  const state = { authorizationServer: "", tokens: new Set() };
  const server = createServer();
  const url = await listen(server);
  const resource = `${url}/mcp`;
  let keys;
  const result = {
    initialize: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "notes", version: "1" } },
    "tools/list": {
      tools: [
        { name: "read", description: "reads the note", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } },
        { name: "write", description: "writes the note", inputSchema: { type: "object" } },
      ],
    },
    "tools/call": { content: [{ type: "text", text: "remember the milk" }] },
    ping: {},
  };
  server.on("request", async (req, res) => {
    const respond = (status, body, headers = {}) => {
      res.writeHead(status, { "Content-Type": "application/json", ...headers });
      res.end(body && JSON.stringify(body));
    };
    if (req.url === "/.well-known/oauth-protected-resource/mcp") {
      return respond(200, { resource, authorization_servers: [state.authorizationServer], scopes_supported: ["notes:read"] });
    }
    const body = [];
    for await (const part of req) body.push(part);
    let scopes;
    const token = /^Bearer (.*)$/.exec(req.headers.authorization ?? "")?.[1];
    try {
      keys ??= jose.createRemoteJWKSet(new URL(`${state.authorizationServer}/jwks`));
      const { payload } = await jose.jwtVerify(token, keys, { issuer: state.authorizationServer, audience: resource });
      scopes = payload.scope.split(" ");
    } catch {
      return respond(401, null, { "WWW-Authenticate": `Bearer resource_metadata="${url}/.well-known/oauth-protected-resource/mcp", scope="notes:read"` });
    }
    state.tokens.add(token);
    if (req.method !== "POST") return respond(405);
    const { id, method, params } = JSON.parse(Buffer.concat(body).toString());
    if (method === "tools/call" && params.name === "write" && !scopes.includes("notes:write")) {
      return respond(403, null, { "WWW-Authenticate": 'Bearer error="insufficient_scope", scope="notes:read notes:write"' });
    }
    if (id === undefined) return respond(202);
    if (!result[method]) return respond(200, { jsonrpc: "2.0", id, error: { code: -32601, message: "unknown method" } });
    respond(200, { jsonrpc: "2.0", id, result: result[method] });
  });
  return {
    resource,
    tokens: state.tokens,
    trust: (issuer) => (state.authorizationServer = issuer),
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

// browse opens an address as a browser does, signs in and consents, and returns the last response. locate returns
// where an address is served.
export async function browse(address, locate) {
  const cookies = new Map();
  let response;
  let request = { method: "GET" };
  for (let step = 0; step < 20; step++) {
    const headers = { ...request.headers, Cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
    response = await fetch(locate(address), { ...request, headers, redirect: "manual" });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      cookies.set(name, value);
    }
    request = { method: "GET" };
    if (response.status >= 300 && response.status < 400) {
      address = new URL(response.headers.get("location"), address).href;
      continue;
    }
    const page = await response.text();
    const form = /<form[^>]* action="([^"]+)"/.exec(page);
    if (!form || !page.includes('name="prompt"')) return { status: response.status, address, text: page };
    address = new URL(form[1], address).href;
    const prompt = /name="prompt" value="([^"]+)"/.exec(page)[1];
    const values = prompt === "login" ? { prompt, login: "ada", password: "any" } : { prompt };
    request = { method: "POST", headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: new URLSearchParams(values).toString() };
  }
  throw new Error(`too many steps, the last one at ${address}`);
}
