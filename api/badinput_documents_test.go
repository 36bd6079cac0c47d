package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// badTokens breaks the rules of a token's fields.
func badTokens() []badInput {
	const good = `{"name":"t","scopes":["agents:read"],"agent_id":"orch-scholar","expires_at":"2027-01-10T00:00:00Z"}`
	token := func(name, member, value, want string) badInput {
		return badInput{name: "token: " + name, target: "/api/v1/tokens", body: replaceMember(good, member, value), want: want}
	}
	all := []badInput{
		token("no name", "name", "", "invalid-request /name required"),
		token("a name null", "name", "null", "invalid-request /name required"),
		token("a name of a number", "name", "1", "invalid-request /name type"),
		token("an empty name", "name", `""`, "invalid-request /name not_blank"),
		token("a name of 120", "name", quoted(strings.Repeat("n", 120)), "201"),
		token("a name of 121", "name", quoted(strings.Repeat("n", 121)), "invalid-request /name max"),
		token("a name of two lines", "name", `"a\nb"`, "invalid-request /name printable"),
		token("a name in emoji", "name", `"🔑"`, "201"),
		token("no scopes", "scopes", "", "invalid-request /scopes required"),
		token("scopes null", "scopes", "null", "invalid-request /scopes not_null"),
		token("scopes of none", "scopes", "[]", "invalid-request /scopes min"),
		token("scopes of a string", "scopes", `"agents:read"`, "invalid-request /scopes type"),
		token("a scope of a number", "scopes", `[1]`, "invalid-request /scopes/0 type"),
		token("a scope there is not", "scopes", `["agents:read","agents:delete"]`, "invalid-request /scopes/1 scope"),
		token("a scope in capitals", "scopes", `["ADMIN"]`, "invalid-request /scopes/0 scope"),
		token("a scope that is a star", "scopes", `["*"]`, "invalid-request /scopes/0 scope"),
		token("a scope empty", "scopes", `[""]`, "invalid-request /scopes/0 scope"),
		token("a scope twice", "scopes", `["agents:read","agents:read"]`, "invalid-request /scopes/1 unique"),
		token("two scopes in one", "scopes", `["agents:read agents:write"]`, "invalid-request /scopes/0 scope"),
		token("no agent", "agent_id", "", "201"),
		token("an agent null", "agent_id", "null", "201"),
		token("an agent that is not there", "agent_id", `"unknown"`, "invalid-request /agent_id exists"),
		token("an agent that is none", "agent_id", `"No Agent"`, "invalid-request /agent_id agent_id"),
		token("an agent of a number", "agent_id", "7", "invalid-request /agent_id type"),
		token("no expiry", "expires_at", "", "201"),
		token("an expiry null", "expires_at", "null", "201"),
		token("an expiry of a number", "expires_at", "1799539200", "invalid-request /expires_at type"),
		token("an expiry now", "expires_at", `"2026-01-10T15:30:00Z"`, "invalid-request /expires_at future"),
		token("an expiry a second from now", "expires_at", `"2026-01-10T15:30:01Z"`, "201"),
		token("an expiry long ago", "expires_at", `"0001-01-01T00:00:00Z"`, "invalid-request /expires_at future"),
		token("an expiry at the end of time", "expires_at", `"9999-12-31T23:59:59Z"`, "201"),
		token("its own secret", "token", `"00000000000000000000000000000000"`, "invalid-request /token unknown_field"),
		token("its own id", "id", `"bootstrap-admin"`, "invalid-request /id unknown_field"),
	}
	for _, text := range []string{
		"", "tomorrow", "2027-01-10", "2027-01-10 00:00:00Z", "2027-01-10T00:00:00", "2027-13-01T00:00:00Z", "2027-02-30T00:00:00Z",
		"2027-01-10T24:00:00Z", "2027-01-10T00:00:00,5Z", "20270110T000000Z", "2027-01-10T00:00:00+25:00", "10000-01-01T00:00:00Z", "2027-1-1T0:0:0Z",
	} {
		all = append(all, token("an expiry of "+quoted(text), "expires_at", quoted(text), "invalid-request /expires_at date_time"))
	}
	return all
}

// badRosters has typical mistakes of users and programs in a document; another test checks the
// line numbers.
func badRosters() []badInput {
	yaml := func(name, body, want string) badInput {
		return badInput{name: "roster: " + name, target: "/api/v1/roster", header: []string{"Content-Type", "application/yaml"}, body: body, want: want}
	}
	json := func(name, body, want string) badInput {
		return badInput{name: "roster: " + name, target: "/api/v1/roster", body: body, want: want}
	}
	entry := func(members string) string {
		return "version: 1\nagents:\n  - {id: x, name: x, level: 2, sphere_id: 1, frequency_hz: 555, parent_id: orch-social" + members + "}\n"
	}
	return []badInput{
		yaml("empty", "\n", "malformed-yaml - required"),
		yaml("a comment", "# nothing\n", "malformed-yaml - required"),
		yaml("no version", "agents: []\n", "invalid-request /version required"),
		yaml("no agents", "version: 1\n", "invalid-request /agents required"),
		yaml("agents of none", "version: 1\nagents: []\n", "200"),
		yaml("version 2", "version: 2\nagents: []\n", "invalid-request /version version"),
		yaml("version of a string", "version: \"1\"\nagents: []\n", "invalid-request /version type"),
		yaml("a list", "- id: x\n", "invalid-request - type"),
		yaml("agents that are a map", "version: 1\nagents: {x: 1}\n", "invalid-request /agents type"),
		yaml("agents null", "version: 1\nagents:\n", "invalid-request /agents not_null"),
		yaml("an entry that is a word", "version: 1\nagents: [nova]\n", "invalid-request /agents/0 type"),
		yaml("an unknown member", "version: 1\nagents: []\nowner: me\n", "invalid-request /owner unknown_field"),
		yaml("a tab", "version: 1\nagents:\n\t- id: x\n", "malformed-yaml - syntax"),
		yaml("an open bracket", "version: 1\nagents: [", "malformed-yaml - syntax"),
		yaml("two documents", "version: 1\nagents: []\n---\nversion: 1\nagents: []\n", "malformed-yaml - trailing_data"),
		yaml("an anchor and an alias", "version: &v 1\nagents: [*v]\n", "malformed-yaml /version anchor, /agents/0 alias"),
		yaml("an alias to nothing", "version: 1\nagents: [*a]\n", "malformed-yaml - alias"),
		yaml("a million laughs", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
			"malformed-yaml /a anchor, /a unknown_field, /version required, /agents required, /b anchor, /b/0 alias, /b/1 alias, /b unknown_field, /c/0 alias, /c/1 alias, /c unknown_field"),
		yaml("a tag", "version: !!int 1\nagents: []\n", "malformed-yaml /version tag"),
		yaml("an object of another language", "version: 1\nagents: !!python/object/apply:os.system [reboot]\n", "malformed-yaml /agents tag, /agents/0 type"),
		yaml("a merge key", "version: 1\nagents:\n  - <<: {id: x}\n", "malformed-yaml /agents/0/<< merge, /agents/0/id required, /agents/0/name required, /agents/0/level required"),
		yaml("a key twice", "version: 1\nversion: 1\nagents: []\n", "malformed-yaml /version duplicate_key"),
		yaml("bytes that are not UTF-8", "version: 1 # \xff\nagents: []\n", "malformed-yaml - utf8"),
		yaml("NUL", "version: 1\x00\nagents: []\n", "malformed-yaml - printable"),
		yaml("NUL, escaped", entry(`, description: "a\0b"`), "malformed-yaml /agents/0/description printable"),
		yaml("a deep one", "version: 1\nagents: "+strings.Repeat("[", 80)+strings.Repeat("]", 80)+"\n", "malformed-yaml /agents"+strings.Repeat("/0", 64)+" depth, /agents/0 type"),
		yaml("yes for true", entry(", is_active: yes"), "invalid-request /agents/0/is_active type"),
		yaml("an id that is a number", "version: 1\nagents:\n  - {id: 7, name: x, level: 2, sphere_id: 1, frequency_hz: 555, parent_id: orch-social}\n", "invalid-request /agents/0/id type"),
		yaml("an octal budget", entry(", token_budget: 0o17500"), "invalid-request /agents/0/token_budget type"),
		yaml("a budget with underscores", entry(", token_budget: 15_000"), "invalid-request /agents/0/token_budget type"),
		yaml("a budget in minutes", entry(", token_budget: 16:40"), "invalid-request /agents/0/token_budget type"),
		yaml("a budget null", entry(", token_budget: null"), "invalid-request /agents/0/token_budget not_null"),
		yaml("an id twice", "version: 1\nagents:\n  - {id: x, name: x, level: 2, sphere_id: 1, frequency_hz: 555, parent_id: orch-social}\n  - {id: x, name: x, level: 2, sphere_id: 1, frequency_hz: 555, parent_id: orch-social}\n", "invalid-request /agents/1/id unique"),
		yaml("a second root", "version: 1\nagents:\n  - {id: nova-2, name: x, level: 0, frequency_hz: 999}\n", "system-agent-exists /agents/0/level single_root"),
		yaml("the root with a budget", "version: 1\nagents:\n  - {id: nova, name: NOVA, level: 0, frequency_hz: 999, token_budget: 5000}\n", "invalid-request /agents/0/token_budget null_for_l0"),
		yaml("the root deactivated", "version: 1\nagents:\n  - {id: nova, name: NOVA, level: 0, frequency_hz: 999, is_active: false}\n", "protected-agent /agents/0/is_active protected"),
		yaml("another level of an agent", "version: 1\nagents:\n  - {id: orch-social, name: x, level: 2, sphere_id: 1, frequency_hz: 555, parent_id: orch-scholar}\n", "immutable-field /agents/0/level immutable, /agents/0/frequency_hz immutable"),
		yaml("a budget too high", entry(", token_budget: 100001"), "token-budget-exceeds-maximum /agents/0/token_budget level_max"),
		yaml("10,001 agents", "version: 1\nagents:\n"+strings.Repeat("  - {}\n", 10_001), "invalid-request /agents max"),
		json("no JSON", `{"version":1`, "malformed-json - syntax"),
		json("JSON: a key twice", `{"version":1,"version":1,"agents":[]}`, "malformed-json /version duplicate_key"),
		json("JSON: null", `null`, "invalid-request - not_null"),
		json("JSON: agents of none", `{"version":1,"agents":[]}`, "200"),
		json("JSON: a fraction for the version", `{"version":1.5,"agents":[]}`, "invalid-request /version type"),
		json("JSON: a fraction of zeros for the version", `{"version":1.0,"agents":[]}`, "200"),
		json("JSON: trailing text", `{"version":1,"agents":[]} x`, "malformed-json - trailing_data"),
		json("JSON: half a surrogate pair", `{"version":1,"agents":[{"id":"\ud800"}]}`, "malformed-json /agents/0/id utf8"),
		json("over its own limit", strings.Repeat(" ", 8<<20)+"{}", "body-too-large "),
	}
}

// badQueries breaks the parameters of every list.
func badQueries() []badInput {
	get := func(query, want string) badInput {
		name := query
		if len(name) > 60 {
			name = fmt.Sprintf("%.60s… (%d)", name, len(query))
		}
		return badInput{name: "query: " + name, method: "GET", target: query, want: want}
	}
	agents := func(query, want string) badInput { return get("/api/v1/agents?"+query, "invalid-parameter "+want) }
	opaque := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return []badInput{
		agents("sphere_id=0", "?sphere_id min"), agents("sphere_id=10", "?sphere_id max"), agents("sphere_id=", "?sphere_id type"),
		agents("sphere_id=1.0", "?sphere_id type"), agents("sphere_id=1e0", "?sphere_id type"), agents("sphere_id=%201", "?sphere_id type"),
		agents("sphere_id=null", "?sphere_id type"), agents("sphere_id=99999999999999999999", "?sphere_id max"),
		agents("sphere_id=1%20OR%201=1", "?sphere_id type"), agents("sphere_id=1;sphere_id=2", "?sphere_id type"),
		agents("level=-1", "?level min"), agents("level=4", "?level max"), agents("level=L3", "?level type"),
		agents("frequency=-1", "?frequency min"), agents("frequency=1000", "?frequency max"), agents("frequency=444Hz", "?frequency type"),
		agents("active=yes", "?active type"), agents("active=TRUES", "?active type"), agents("active", "?active type"),
		agents("limit=0", "?limit min"), agents("limit=1001", "?limit max"), agents("limit=-5", "?limit min"), agents("limit=ten", "?limit type"),
		agents("offset=-1", "?offset min"), agents("offset=10000001", "?offset max"), agents("offset=0x10", "?offset type"),
		agents("sort=budget", "?sort enum"), agents("sort=id,name", "?sort enum"), agents("sort=ID", "?sort enum"), agents("sort=--id", "?sort enum"),
		agents("sort=id;DROP%20TABLE%20agents", "?sort enum"),
		agents("parent_id=", "?parent_id min"), agents("parent_id="+strings.Repeat("p", 65), "?parent_id max"), agents("parent_id=a%00b", "?parent_id printable"),
		agents("capability=", "?capability min"), agents("capability="+strings.Repeat("c", 129), "?capability max"),
		agents(strings.Repeat("capability=a&", 11), "?capability max"),
		agents("q=", "?q min"), agents("q="+strings.Repeat("q", 201), "?q max"), agents("q=%00", "?q printable"), agents("q=%0d%0aX-Admin:1", "?q printable"),
		agents("q=%FF", "?q encoding"), agents("q=%ED%A0%80", "?q encoding"), agents("q=100%", "?q encoding"), agents("q=%u0041", "?q encoding"),
		agents("total=maybe", "?total type"),
		agents("cursor=", "?cursor min"), agents("cursor=next", "?cursor cursor"), agents("cursor=%25%25", "?cursor cursor"),
		agents("cursor="+strings.Repeat("A", 2001), "?cursor max"), agents("cursor="+opaque(`{"i":"nova","f":1}`), "?cursor cursor"),
		agents("cursor="+opaque(`{}`), "?cursor cursor"), agents("cursor="+opaque(`[]`), "?cursor cursor"), agents("cursor="+opaque("\xff"), "?cursor cursor"),
		agents("level=1&level=2", "?level repeated"), agents("limit=5&limit=5", "?limit repeated"),
		agents("colour=red", "?colour unknown_parameter"), agents("Level=1", "?Level unknown_parameter"), agents("level[]=1", "?level[] unknown_parameter"),
		agents("%6Cevle=1", "?levle unknown_parameter"), agents("%zz=1", "?%zz encoding"), agents("=1", "- unknown_parameter"),
		agents("level=9&limit=0&x=1", "?x unknown_parameter, ?level max, ?limit min"),
		agents("__proto__=1", "?__proto__ unknown_parameter"), agents("access_token=secret", "?access_token unknown_parameter"),
		get("/api/v1/agents?q=%F0%9F%A4%96&sort=-name&limit=1000&offset=10000000&total=0", "200"),
		get("/api/v1/agents?q=%27%3B--&capability=%27&parent_id=%27%20OR%201%3D1--", "200"),
		get("/api/v1/agents/nova?depth=1", "invalid-parameter ?depth unknown_parameter"),
		get("/api/v1/agents/nova/ancestors?limit=1", "invalid-parameter ?limit unknown_parameter"),
		get("/api/v1/agents/nova/audit?limit=0", "invalid-parameter ?limit min"),
		get("/api/v1/agents/nova/audit?offset=1", "invalid-parameter ?offset unknown_parameter"),
		get("/api/v1/agents/nova/audit?cursor=x", "invalid-parameter ?cursor cursor"),
		get("/api/v1/agents/nova/audit?cursor="+opaque("-1"), "invalid-parameter ?cursor cursor"),
		get("/api/v1/agents/nova/audit?cursor="+opaque("99999999999999999999"), "invalid-parameter ?cursor cursor"),
		get("/api/v1/agents/nova/audit?cursor="+opaque("1 OR 1=1"), "invalid-parameter ?cursor cursor"),
		get("/api/v1/hierarchy?depth=-1", "invalid-parameter ?depth min"),
		get("/api/v1/hierarchy?depth=4", "invalid-parameter ?depth max"),
		get("/api/v1/hierarchy?root=", "invalid-parameter ?root min"),
		get("/api/v1/hierarchy?root="+strings.Repeat("r", 65), "invalid-parameter ?root max"),
		get("/api/v1/hierarchy?root=%27%20OR%201%3D1", "not-found "),
		get("/api/v1/hierarchy?active_only=2", "invalid-parameter ?active_only type"),
		get("/api/v1/roster?format=xml", "invalid-parameter ?format enum"),
		get("/api/v1/roster?dry_run=true", "invalid-parameter ?dry_run unknown_parameter"),
		get("/api/v1/tokens?limit=1001", "invalid-parameter ?limit max"),
		get("/api/v1/tokens?cursor=%2B", "invalid-parameter ?cursor cursor"),
		get("/api/v1/tokens?cursor="+opaque("\x00"), "invalid-parameter ?cursor cursor"),
		get("/api/v1/tokens?cursor="+opaque("\xff\xfe"), "invalid-parameter ?cursor cursor"),
		get("/api/v1/tokens?scope=admin", "invalid-parameter ?scope unknown_parameter"),
		get("/api/v1/me?verbose=1", "invalid-parameter ?verbose unknown_parameter"),
	}
}
