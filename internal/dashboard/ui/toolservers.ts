// The MCP servers with their tools in quarantine.
import { useCallback } from "preact/hooks";
import { call, type Schemas } from "./api";
import { kinds, useLoad, useRepeat, type Resource } from "./resource";
import { administers, can } from "./session";

export type Server = Schemas["UpstreamView"] & { quarantined: Schemas["ToolDefinitionView"][] };

export const serversPath = "/api/v1/upstreams";

/** useServers reads the servers. Only tokens that may approve definitions can read which tools are in quarantine. */
export function useServers(): Resource<Server[]> {
  const load = useCallback(async (signal: AbortSignal) => {
    if (!can("tools:call")) return undefined;
    const { upstreams } = await call<Schemas["UpstreamList"]>({ path: serversPath }, signal);
    return Promise.all(
      upstreams.map(async (u): Promise<Server> => {
        if (!administers() || u.tools === 0) return { ...u, quarantined: [] };
        const { tools } = await call<Schemas["ToolDefinitionList"]>({ path: `${serversPath}/${encodeURIComponent(u.id)}/tools` }, signal);
        return { ...u, quarantined: tools.filter((t) => t.state === "quarantined") };
      }),
    );
  }, []);
  const servers = useLoad(load, kinds("upstream.", "tool.quarantined", "tool.approved"));
  useRepeat(servers.reload, !administers(), 5000); // only administrators receive events of servers
  return servers;
}
