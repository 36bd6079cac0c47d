package api_test

import (
	"strings"
)

// badKeys breaks the rules of an agent's key.
func badKeys() []badInput {
	const target = "/api/v1/agents/orch-scholar/key"
	key := func(name, body, want string) badInput {
		return badInput{name: "key: " + name, method: "PUT", target: target, body: body, want: want}
	}
	change := func(name, body, want string) badInput {
		return badInput{name: "key: " + name, method: "PATCH", target: target, body: body, want: want}
	}
	of := func(text string) string { return `{"key":` + quoted(text) + `}` }
	return []badInput{
		change("required of none", `{"required":true}`, "not-found "),
		key("of 16 bytes", of(strings.Repeat("k", 16)), "201"),
		key("of 15 bytes", of(strings.Repeat("k", 15)), "invalid-request /key min"),
		key("of 128 bytes", of(strings.Repeat("k", 128)), "200"),
		key("of 129 bytes", of(strings.Repeat("k", 129)), "invalid-request /key max"),
		key("of 44 characters and 132 bytes", of(strings.Repeat("€", 44)), "invalid-request /key max"),
		key("of 6 characters and 18 bytes", of(strings.Repeat("€", 6)), "200"),
		key("empty", of(""), "invalid-request /key min"),
		key("of two lines", `{"key":"0123456789\n0123456789"}`, "invalid-request /key printable"),
		key("with NUL", `{"key":"0123456789\u00000123456789"}`, "invalid-request /key printable"),
		key("of a number", `{"key":12345678901234567890}`, "invalid-request /key type"),
		key("null", `{"key":null,"required":null}`, "200"),
		key("required of a string", `{"required":"yes"}`, "invalid-request /required type"),
		key("another member", `{"secret":"0123456789abcdef"}`, "invalid-request /secret unknown_field"),
		key("a list", `[]`, "invalid-request - type"),
		key("half of it", `{"key":`, "malformed-json /key syntax"),
		change("a key to PATCH", of(strings.Repeat("k", 16)), "invalid-request /key unknown_field"),
		change("nothing to PATCH", `{}`, "invalid-request /required required"),
		change("null to PATCH", `{"required":null}`, "invalid-request /required required"),
		{name: "key: of an unknown agent", method: "PUT", target: "/api/v1/agents/unknown/key", want: "not-found "},
		{name: "key: a parameter", method: "GET", target: target + "?show=1", want: "invalid-parameter ?show unknown_parameter"},
		{name: "key: revoked with a body", method: "DELETE", target: target, body: `{"x":1}`, want: "invalid-request "},
		{name: "key: posted", target: target, body: "{}", want: "method-not-allowed "},
	}
}
