package api_test

import (
	"fmt"
	"strings"
)

// badDrafts breaks the rules of each field of a new agent (CHE·NU §2.2, §4.2,
// §5.1), at their bounds too.
func badDrafts() []badInput {
	create := func(name, member, value, want string) badInput {
		return badInput{name: "create: " + name, target: "/api/v1/agents", body: draftWith(member, value), want: want}
	}
	long := func(n int) string { return quoted(strings.Repeat("x", n)) }
	capabilities := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf(`"custom:c%d"`, i)
		}
		return "[" + strings.Join(names, ",") + "]"
	}
	return []badInput{
		create("no id", "id", "", "invalid-request /id required"),
		create("no name", "name", "", "invalid-request /name required"),
		create("no level", "level", "", "invalid-request /level required"),
		create("no parent", "parent_id", "", "invalid-request /parent_id required"),
		create("no budget is the default", "token_budget", "", "201"),
		create("no budget scope is own", "budget_scope", "", "201"),
		create("no capabilities are none", "capabilities", "", "201"),
		create("no description is an empty one", "description", "", "201"),
		create("no type is none", "type", "", "201"),

		create("id null", "id", "null", "invalid-request /id required"),
		create("name null", "name", "null", "invalid-request /name required"),
		create("level null", "level", "null", "invalid-request /level required"),
		create("parent null", "parent_id", "null", "invalid-request /parent_id required"),
		create("budget null", "token_budget", "null", "invalid-request /token_budget not_null"),
		create("budget scope null", "budget_scope", "null", "invalid-request /budget_scope not_null"),
		create("capabilities null", "capabilities", "null", "invalid-request /capabilities not_null"),
		create("description null", "description", "null", "invalid-request /description not_null"),
		create("type null", "type", "null", "invalid-request /type not_null"),
		create("a capability null", "capabilities", `["budgeting",null]`, "invalid-request /capabilities/1 not_null"),

		create("id empty", "id", `""`, "invalid-request /id agent_id"),
		create("name empty", "name", `""`, "invalid-request /name not_blank"),
		create("name of spaces", "name", `"   "`, "invalid-request /name not_blank"),
		create("parent empty", "parent_id", `""`, "invalid-request /parent_id agent_id"),
		create("description empty", "description", `""`, "201"),
		create("type empty", "type", `""`, "201"),
		create("capabilities empty", "capabilities", `[]`, "201"),
		create("a capability empty", "capabilities", `[""]`, "invalid-request /capabilities/0 capability"),

		create("id of 64", "id", long(64), "201"),
		create("id of 65", "id", long(65), "invalid-request /id agent_id"),
		create("id of one", "id", `"a"`, "201"),
		create("id of one digit", "id", `"0"`, "201"),
		create("id of 1 MB", "id", long(1_000_000), "invalid-request /id agent_id"),
		create("id with a capital", "id", `"Agent"`, "invalid-request /id agent_id"),
		create("id with an underscore", "id", `"an_agent"`, "invalid-request /id agent_id"),
		create("id with a space", "id", `"an agent"`, "invalid-request /id agent_id"),
		create("id with a leading hyphen", "id", `"-agent"`, "invalid-request /id agent_id"),
		create("id with a trailing hyphen", "id", `"agent-"`, "invalid-request /id agent_id"),
		create("id with two hyphens", "id", `"an--agent"`, "invalid-request /id agent_id"),
		create("id with a dot", "id", `"agent.1"`, "invalid-request /id agent_id"),
		create("id with a line feed at its end", "id", `"agent\n"`, "invalid-request /id agent_id"),
		create("id with an umlaut", "id", `"über"`, "invalid-request /id agent_id"),
		create("id in Cyrillic that looks Latin", "id", `"аgent"`, "invalid-request /id agent_id"),
		create("id with wide digits", "id", `"agent-１"`, "invalid-request /id agent_id"),
		create("id that is taken", "id", `"orch-scholar"`, "agent-id-exists /id unique"),
		create("id of L0", "id", `"nova"`, "agent-id-exists /id unique"),
		create("id that leaves the address", "id", `"../../etc/passwd"`, "invalid-request /id agent_id"),
		create("id that ends a statement", "id", `"x'; DROP TABLE agents;--"`, "invalid-request /id agent_id"),
		create("id of format verbs", "id", `"%s%n%x"`, "invalid-request /id agent_id"),

		create("name of 120", "name", long(120), "201"),
		create("name of 121", "name", long(121), "invalid-request /name max"),
		create("description of 2000", "description", long(2000), "201"),
		create("description of 2001", "description", long(2001), "invalid-request /description max"),
		create("type of 64", "type", long(64), "201"),
		create("type of 65", "type", long(65), "invalid-request /type word"),
		create("type of two words", "type", `"deep research"`, "invalid-request /type word"),
		create("type with a capital", "type", `"Research"`, "invalid-request /type word"),

		create("level -1", "level", "-1", "invalid-request /level min"),
		create("level 4", "level", "4", "invalid-request /level max"),
		create("level 0 without the rest", "level", "0", "invalid-frequency /frequency_hz frequency_level"),
		create("level 3 under L1", "level", "3", "invalid-frequency /frequency_hz frequency_level, /parent_id parent_level"),
		create("sphere 0", "sphere_id", "0", "invalid-request /sphere_id min"),
		create("sphere 1", "sphere_id", "1", "201"),
		create("sphere 9", "sphere_id", "9", "201"),
		create("sphere 10", "sphere_id", "10", "invalid-request /sphere_id max"),
		create("frequency 0", "frequency_hz", "0", "invalid-frequency /frequency_hz frequency_level"),
		create("frequency -555", "frequency_hz", "-555", "invalid-frequency /frequency_hz frequency_level"),
		create("frequency 554", "frequency_hz", "554", "invalid-frequency /frequency_hz frequency_level"),
		create("frequency 556", "frequency_hz", "556", "invalid-frequency /frequency_hz frequency_level"),
		create("frequency 665", "frequency_hz", "665", "invalid-frequency /frequency_hz frequency_level"),
		create("frequency 666", "frequency_hz", "666", "201"),
		create("frequency 667", "frequency_hz", "667", "invalid-frequency /frequency_hz frequency_level"),

		create("budget -1", "token_budget", "-1", "invalid-request /token_budget min"),
		create("budget 0", "token_budget", "0", "invalid-request /token_budget min"),
		create("budget 999", "token_budget", "999", "invalid-request /token_budget min"),
		create("budget 1000", "token_budget", "1000", "201"),
		create("budget 100000", "token_budget", "100000", "201"),
		create("budget 100001", "token_budget", "100001", "token-budget-exceeds-maximum /token_budget level_max"),
		create("budget of 63 bits", "token_budget", "9223372036854775807", "token-budget-exceeds-maximum /token_budget level_max"),
		create("budget scope own", "budget_scope", `"own"`, "201"),
		create("budget scope subtree", "budget_scope", `"subtree"`, "201"),
		create("budget scope empty", "budget_scope", `""`, "invalid-request /budget_scope oneof"),
		create("budget scope with a capital", "budget_scope", `"Own"`, "invalid-request /budget_scope oneof"),
		create("budget scope with a space", "budget_scope", `"own "`, "invalid-request /budget_scope oneof"),
		create("both budget scopes", "budget_scope", `"own subtree"`, "invalid-request /budget_scope oneof"),
		create("budget scope true", "budget_scope", "true", "invalid-request /budget_scope type"),
		create("budget of 64 bits", "token_budget", "9223372036854775808", "invalid-request /token_budget range"),
		create("budget of 64 bits below zero", "token_budget", "-9223372036854775809", "invalid-request /token_budget range"),
		create("level of 1000 digits", "level", strings.Repeat("9", 1000), "invalid-request /level range"),

		create("parent of 65", "parent_id", long(65), "invalid-request /parent_id agent_id"),
		create("parent that is not there", "parent_id", `"unknown"`, "parent-not-found /parent_id exists"),
		create("parent in capitals", "parent_id", `"ORCH-PERSONNEL"`, "invalid-request /parent_id agent_id"),
		create("parent that is L0", "parent_id", `"nova"`, "invalid-parent-level /parent_id parent_level"),
		create("parent that is always true", "parent_id", `"' OR '1'='1"`, "invalid-request /parent_id agent_id"),
		create("parent that is the agent itself", "parent_id", `"$ID"`, "parent-not-found /parent_id exists"),

		create("256 capabilities", "capabilities", capabilities(256), "201"),
		create("257 capabilities", "capabilities", capabilities(257), "invalid-request /capabilities max"),
		create("capability of 128", "capabilities", "["+long(128)+"]", "201"),
		create("capability of 129", "capabilities", "["+long(129)+"]", "invalid-request /capabilities/0 capability"),
		create("capability with a space", "capabilities", `["tax planning"]`, "invalid-request /capabilities/0 capability"),
		create("capability that is a prefix", "capabilities", `["custom:"]`, "invalid-request /capabilities/0 capability"),
		create("capability that is a command", "capabilities", `["budgeting","$(reboot)"]`, "invalid-request /capabilities/1 capability"),
		create("capability twice", "capabilities", `["budgeting","savings","budgeting"]`, "invalid-request /capabilities/2 unique"),
		create("capability in another case", "capabilities", `["budgeting","Budgeting"]`, "201"),
		create("capability with and without prefix", "capabilities", `["budgeting","custom:budgeting"]`, "201"),
	}
}

// badTypes gives each field of a new agent, of a patch and of a token every type
// it does not have.
func badTypes() (all []badInput) {
	values := []struct{ name, json string }{
		{"a string", `"1"`}, {"a number", `1`}, {"a fraction", `1.5`},
		{"true", `true`}, {"an array", `[]`}, {"an object", `{}`},
	}
	fields := []struct{ member, takes string }{
		{"id", "a string"}, {"name", "a string"}, {"description", "a string"}, {"type", "a string"}, {"parent_id", "a string"},
		{"level", "a number"}, {"sphere_id", "a number"}, {"frequency_hz", "a number"}, {"token_budget", "a number"},
		{"capabilities", "an array"}, {"is_active", "true"},
	}
	for _, f := range fields {
		for _, v := range values {
			if v.name == f.takes {
				continue
			}
			want := "invalid-request /" + f.member + " type"
			if f.member != "is_active" {
				all = append(all, badInput{name: "create: " + f.member + " is " + v.name, target: "/api/v1/agents", body: draftWith(f.member, v.json), want: want})
			}
			all = append(all, badInput{
				name: "patch: " + f.member + " is " + v.name, method: "PATCH", target: "/api/v1/agents/patch-me",
				body: `{"` + f.member + `":` + v.json + `}`, want: want,
			})
		}
	}
	return append(all,
		badInput{name: "create: a capability is a number", target: "/api/v1/agents", body: draftWith("capabilities", `["budgeting",7]`), want: "invalid-request /capabilities/1 type"},
		badInput{name: "create: a capability is an object", target: "/api/v1/agents", body: draftWith("capabilities", `[{"name":"budgeting"}]`), want: "invalid-request /capabilities/0 type"},
		badInput{name: "create: everything is a string", target: "/api/v1/agents", body: `{"level":"2","sphere_id":"1","frequency_hz":"555"}`, want: "invalid-request /level type, /sphere_id type, /frequency_hz type"},
	)
}

// badPatches breaks the rules of a change (CHE·NU §2.3, §2.4).
func badPatches() []badInput {
	patch := func(name, body, want string) badInput {
		return badInput{name: "patch: " + name, method: "PATCH", target: "/api/v1/agents/patch-me", body: body, want: want}
	}
	return []badInput{
		patch("nothing", `{}`, "200"),
		patch("an empty name", `{"name":""}`, "invalid-request /name not_blank"),
		patch("a long name", `{"name":"`+strings.Repeat("n", 121)+`"}`, "invalid-request /name max"),
		patch("a name of two lines", `{"name":"a\nb"}`, "invalid-request /name printable"),
		patch("a name null", `{"name":null}`, "invalid-request /name not_null"),
		patch("a long description", `{"description":"`+strings.Repeat("d", 2001)+`"}`, "invalid-request /description max"),
		patch("a description null", `{"description":null}`, "200"),
		patch("a description of several lines", `{"description":"a\r\n\tb"}`, "200"),
		patch("a description with an escape character", `{"description":"a\u001b[31m"}`, "invalid-request /description printable"),
		patch("a bad type", `{"type":"Two Words"}`, "invalid-request /type word"),
		patch("sphere 0", `{"sphere_id":0}`, "invalid-request /sphere_id min"),
		patch("sphere 10", `{"sphere_id":10}`, "invalid-request /sphere_id max"),
		patch("sphere null", `{"sphere_id":null}`, "invalid-request /sphere_id not_null"),
		patch("budget 999", `{"token_budget":999}`, "invalid-request /token_budget min"),
		patch("budget 1000", `{"token_budget":1000}`, "200"),
		patch("budget 100000", `{"token_budget":100000}`, "200"),
		patch("budget 100001", `{"token_budget":100001}`, "token-budget-exceeds-maximum /token_budget level_max"),
		patch("budget null", `{"token_budget":null}`, "invalid-request /token_budget not_null"),
		patch("budget scope subtree", `{"budget_scope":"subtree"}`, "200"),
		patch("budget scope null", `{"budget_scope":null}`, "invalid-request /budget_scope not_null"),
		patch("another budget scope", `{"budget_scope":"tree"}`, "invalid-request /budget_scope oneof"),
		patch("budget scope in a list", `{"budget_scope":["own"]}`, "invalid-request /budget_scope type"),
		patch("capabilities null", `{"capabilities":null}`, "invalid-request /capabilities not_null"),
		patch("a capability null", `{"capabilities":[null]}`, "invalid-request /capabilities/0 not_null"),
		patch("a capability twice", `{"capabilities":["a","a"]}`, "invalid-request /capabilities/1 unique"),
		patch("a parent that is not there", `{"parent_id":"unknown"}`, "parent-not-found /parent_id exists"),
		patch("a parent of the wrong level", `{"parent_id":"nova"}`, "invalid-parent-level /parent_id parent_level"),
		patch("itself as its parent", `{"parent_id":"patch-me"}`, "invalid-parent-level /parent_id parent_level"),
		patch("a parent null", `{"parent_id":null}`, "invalid-request /parent_id not_null"),
		patch("a parent empty", `{"parent_id":""}`, "invalid-request /parent_id agent_id"),
		patch("active null", `{"is_active":null}`, "invalid-request /is_active not_null"),
		patch("its own id", `{"id":"patch-me"}`, "200"),
		patch("another id", `{"id":"patch-you"}`, "immutable-field /id immutable"),
		patch("an id that is none", `{"id":"NOT AN ID"}`, "immutable-field /id immutable"),
		patch("an id null", `{"id":null}`, "invalid-request /id not_null"),
		patch("its own level and frequency", `{"level":2,"frequency_hz":555}`, "200"),
		patch("another level", `{"level":3}`, "immutable-field /level immutable"),
		patch("a level there is not", `{"level":99}`, "immutable-field /level immutable"),
		patch("another frequency of the level", `{"frequency_hz":666}`, "immutable-field /frequency_hz immutable"),
		patch("a level null", `{"level":null}`, "invalid-request /level not_null"),
		patch("created_at", `{"created_at":"2020-01-01T00:00:00Z"}`, "invalid-request /created_at unknown_field"),
		patch("version", `{"version":99}`, "invalid-request /version unknown_field"),
		patch("tokens_used_today", `{"tokens_used_today":0}`, "invalid-request /tokens_used_today unknown_field"),
		patch("no object", `[{"op":"replace","path":"/name","value":"x"}]`, "invalid-request - type"),
		patch("null", `null`, "invalid-request - not_null"),
		patch("no body", ``, "malformed-json - required"),
		patch("good and bad at once", `{"name":"Kept","description":"x","token_budget":1}`, "invalid-request /token_budget min"),
	}
}
