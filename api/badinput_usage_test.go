package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const usageOf = "/api/v1/agents/orch-scholar"

// goodFact breaks no rule.
const goodFact = `{"tokens":5,"task_id":"t","model":"m","kind":"k","request_id":"r","outcome":"success","duration_ms":1,"session_id":"s"}`

// TestBadUsage sends invalid requests to the ledger, one after the
// other to one server. Each is answered with its exact status, code, place and rule,
// and after all of them nothing was recorded, held, added or written off.
func TestBadUsage(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(badFacts(), badReports(), badReservations(), badOperations(), badHistories(), badLedgerAddresses())
	require.GreaterOrEqual(t, len(cases), 250)
	seen := map[string]bool{}
	for _, c := range cases {
		require.False(t, seen[c.name], c.name)
		seen[c.name] = true
	}
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) { //nolint:thelper // the body of the test
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				require.False(t, c.check(t, h, c.body), "it was accepted")
			})
		}
		v, err := h.ledger.Verify(t.Context())
		require.NoError(t, err)
		require.Zero(t, v.Total)
		require.Zero(t, v.Facts)
		require.Zero(t, v.Reservations)
		u, err := h.ledger.Usage(t.Context(), "orch-scholar")
		require.NoError(t, err)
		require.EqualValues(t, 100_000, *u.Budget)
		require.Zero(t, u.ForgivenToday)
	})
}

// badFacts breaks the rules of each member of a fact, alone and among several.
func badFacts() (all []badInput) {
	long := func(n int) string { return quoted(strings.Repeat("x", n)) }
	for _, c := range []struct{ name, member, value, rule string }{
		{"no tokens", "tokens", "", "required"},
		{"tokens null", "tokens", "null", "required"},
		{"tokens 0", "tokens", "0", "min"},
		{"tokens -0", "tokens", "-0", "min"},
		{"tokens -1", "tokens", "-1", "min"},
		{"tokens one over the most", "tokens", "1000000000001", "max"},
		{"tokens of 63 bits", "tokens", "9223372036854775807", "max"},
		{"tokens of 64 bits", "tokens", "9223372036854775808", "range"},
		{"tokens of 64 bits below zero", "tokens", "-9223372036854775809", "range"},
		{"tokens of 1000 digits", "tokens", strings.Repeat("9", 1000), "range"},
		{"tokens a fraction", "tokens", "1.5", "type"},
		{"tokens 0 with a fraction", "tokens", "0.0", "min"},
		{"tokens with an exponent", "tokens", "1e13", "max"},
		{"tokens out of range", "tokens", "1e999999999", "range"},
		{"tokens a string", "tokens", `"5"`, "type"},
		{"tokens true", "tokens", "true", "type"},
		{"tokens in a list", "tokens", "[5]", "type"},
		{"tokens an object", "tokens", "{}", "type"},
		{"task of 129", "task_id", long(129), "max"},
		{"task blank", "task_id", `"  "`, "not_blank"},
		{"task with NUL", "task_id", `"a\u0000"`, "printable"},
		{"task of two lines", "task_id", `"a\nb"`, "printable"},
		{"task null", "task_id", "null", "not_null"},
		{"task a number", "task_id", "7", "type"},
		{"model of 129", "model", long(129), "max"},
		{"model with an escape character", "model", `"\u001b[2J"`, "printable"},
		{"model a list", "model", `["m"]`, "type"},
		{"model null", "model", "null", "not_null"},
		{"kind of 65", "kind", long(65), "max"},
		{"kind of zero width spaces", "kind", quoted("\u200b\u200d"), "not_blank"},
		{"kind an object", "kind", "{}", "type"},
		{"request of 129", "request_id", long(129), "max"},
		{"request with NUL", "request_id", `"\u0000"`, "printable"},
		{"request blank", "request_id", `" "`, "not_blank"},
		{"request a number", "request_id", "1", "type"},
		{"request empty", "request_id", `""`, "not_blank"},
		{"session of 129", "session_id", long(129), "max"},
		{"session blank", "session_id", `"\t"`, "not_blank"},
		{"session true", "session_id", "true", "type"},
		{"outcome of another word", "outcome", `"done"`, "oneof"},
		{"outcome with a capital", "outcome", `"Success"`, "oneof"},
		{"outcome a truth value", "outcome", "true", "type"},
		{"outcome null", "outcome", "null", "not_null"},
		{"duration -1", "duration_ms", "-1", "min"},
		{"duration of 30 days and a millisecond", "duration_ms", "2592000001", "max"},
		{"duration a fraction", "duration_ms", "0.5", "type"},
		{"duration a string", "duration_ms", `"1s"`, "type"},
		{"agent_id", "agent_id", `"nova"`, "unknown_field"},
		{"at", "at", `"2026-01-10T15:30:00Z"`, "unknown_field"},
		{"tokens with a capital", "Tokens", "5", "unknown_field"},
		{"facts in a fact", "fact", "[]", "unknown_field"},
	} {
		fact := replaceMember(goodFact, c.member, c.value)
		all = append(all,
			badInput{name: "fact: " + c.name, target: usageOf + "/usage", body: fact, want: "invalid-request /" + c.member + " " + c.rule},
			badInput{name: "facts: " + c.name, target: usageOf + "/usage", body: `{"facts":[{"tokens":1},` + fact + `]}`, want: "invalid-request /facts/1/" + c.member + " " + c.rule})
	}
	return all
}

// badReports breaks the rules of a report as a whole.
func badReports() []badInput {
	report := func(name, body, want string) badInput {
		return badInput{name: "report: " + name, target: usageOf + "/usage", body: body, want: want}
	}
	many := func(n int) string { return `{"facts":[` + strings.Repeat(`{"tokens":1},`, n-1) + `{"tokens":1}]}` }
	return []badInput{
		report("no body", "", "malformed-json - required"),
		report("nothing", "{}", "invalid-request /tokens required"),
		report("null", "null", "invalid-request - not_null"),
		report("a list", `[{"tokens":1}]`, "invalid-request - type"),
		report("a number", "5", "invalid-request - type"),
		report("an unfinished one", `{"tokens":5`, "malformed-json - syntax"),
		report("two of them", `{"tokens":5}{"tokens":5}`, "malformed-json - trailing_data"),
		report("lines", "{\"tokens\":5}\n{\"tokens\":6}\n", "malformed-json - trailing_data"),
		report("tokens twice", `{"tokens":5,"tokens":6}`, "malformed-json /tokens duplicate_key"),
		report("bytes that are not UTF-8", "{\"tokens\":5,\"model\":\"\xff\"}", "malformed-json /model utf8"),
		report("NUL as it is", "{\"tokens\":5,\"model\":\"a\x00\"}", "malformed-json /model syntax"),
		report("no facts", `{"facts":[]}`, "invalid-request /facts count"),
		report("facts null", `{"facts":null}`, "invalid-request /facts not_null"),
		report("facts an object", `{"facts":{"tokens":1}}`, "invalid-request /facts type"),
		report("facts a number", `{"facts":3}`, "invalid-request /facts type"),
		report("a fact null", `{"facts":[{"tokens":1},null]}`, "invalid-request /facts/1 not_null"),
		report("a fact that is a number", `{"facts":[5]}`, "invalid-request /facts/0 type"),
		report("a fact that is a list", `{"facts":[[{"tokens":1}]]}`, "invalid-request /facts/0 type"),
		report("facts within facts", `{"facts":[{"facts":[{"tokens":1}]}]}`, "invalid-request /facts/0/facts unknown_field"),
		report("1,001 facts", many(1001), "invalid-request /facts count"),
		report("both forms", `{"tokens":5,"facts":[{"tokens":1}]}`, "invalid-request /facts exclusive"),
		report("both forms, and no facts", `{"model":"m","facts":[]}`, "invalid-request /facts exclusive"),
		report("a member beside facts", `{"facts":[{"tokens":1}],"agent_id":"nova"}`, "invalid-request /agent_id unknown_field"),
		report("several mistakes", `{"facts":[{"tokens":0},{"tokens":1,"duration_ms":5},{}]}`,
			"invalid-request /facts/0/tokens min, /facts/1/duration_ms outcome, /facts/2/tokens required"),
		report("a duration of nothing", `{"tokens":1,"duration_ms":5,"session_id":"s"}`, "invalid-request /duration_ms outcome, /session_id outcome"),
		report("one request_id for two", `{"facts":[{"tokens":1,"request_id":"a"},{"tokens":2,"request_id":"a"}]}`, "request-id-reused /facts/1/request_id unique"),
		report("over a mebibyte", `{"tokens":1,"model":"`+strings.Repeat("x", 1<<20)+`"}`, "body-too-large "),
		{name: "report: a form", target: usageOf + "/usage", body: "tokens=5", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, want: "unsupported-media-type Content-Type: media_type"},
		{name: "report: an empty key", target: usageOf + "/usage", body: `{"tokens":5}`, header: []string{"Idempotency-Key", " "}, want: "invalid-header Idempotency-Key: idempotency_key"},
	}
}

// badReservations breaks the rules of reserving and settling.
func badReservations() (all []badInput) {
	for _, c := range []struct{ name, body, want string }{
		{"nothing", `{}`, "/tokens required"},
		{"tokens null", `{"tokens":null}`, "/tokens required"},
		{"tokens 0", `{"tokens":0}`, "/tokens min"},
		{"tokens -5", `{"tokens":-5}`, "/tokens min"},
		{"tokens one over the most", `{"tokens":1000000000001}`, "/tokens max"},
		{"tokens of 64 bits", `{"tokens":9223372036854775808}`, "/tokens range"},
		{"tokens a fraction", `{"tokens":1.5}`, "/tokens type"},
		{"tokens a string", `{"tokens":"1"}`, "/tokens type"},
		{"for 0 seconds", `{"tokens":1,"ttl_seconds":0}`, "/ttl_seconds min"},
		{"for -1 seconds", `{"tokens":1,"ttl_seconds":-1}`, "/ttl_seconds min"},
		{"for a day and a second", `{"tokens":1,"ttl_seconds":86401}`, "/ttl_seconds max"},
		{"for 292 billion years", `{"tokens":1,"ttl_seconds":9223372036854775807}`, "/ttl_seconds max"},
		{"for half a second", `{"tokens":1,"ttl_seconds":0.5}`, "/ttl_seconds type"},
		{"for a word", `{"tokens":1,"ttl_seconds":"1m"}`, "/ttl_seconds type"},
		{"a member of a fact", `{"tokens":1,"model":"m"}`, "/model unknown_field"},
		{"a list", `[]`, "- type"},
	} {
		all = append(all, badInput{name: "reserve: " + c.name, target: usageOf + "/reservations", body: c.body, want: "invalid-request " + c.want})
	}
	for _, c := range []struct{ name, body, want string }{
		{"nothing", `{}`, "invalid-request /tokens required"},
		{"tokens null", `{"tokens":null}`, "invalid-request /tokens required"},
		{"tokens -1", `{"tokens":-1}`, "invalid-request /tokens min"},
		{"tokens one over the most", `{"tokens":1000000000001}`, "invalid-request /tokens max"},
		{"tokens a fraction", `{"tokens":0.1}`, "invalid-request /tokens type"},
		{"a long model", `{"tokens":1,"model":"` + strings.Repeat("m", 129) + `"}`, "invalid-request /model max"},
		{"a duration without an outcome", `{"tokens":1,"duration_ms":1}`, "invalid-request /duration_ms outcome"},
		{"a session without an outcome", `{"tokens":1,"session_id":"s"}`, "invalid-request /session_id outcome"},
		{"a request_id", `{"tokens":1,"request_id":"r"}`, "invalid-request /request_id unknown_field"},
		{"a reservation there is not", `{"tokens":1}`, "not-found "},
	} {
		all = append(all, badInput{name: "settle: " + c.name, target: usageOf + "/reservations/nothing/settle", body: c.body, want: c.want})
	}
	return all
}

// badOperations breaks the rules of what operators do.
func badOperations() (all []badInput) {
	const good = `{"tokens":5,"expires_at":"2026-01-11T00:00:00Z","reason":"x"}`
	for _, c := range []struct{ name, member, value, rule string }{
		{"no tokens", "tokens", "", "required"},
		{"tokens 0", "tokens", "0", "min"},
		{"tokens one over the most", "tokens", "1000000000001", "max"},
		{"tokens a fraction", "tokens", "1.5", "type"},
		{"no expiry", "expires_at", "", "required"},
		{"expiry null", "expires_at", "null", "required"},
		{"an expiry that has passed", "expires_at", `"2026-01-10T15:30:00Z"`, "future"},
		{"an expiry before our time", "expires_at", `"0001-01-01T00:00:00Z"`, "future"},
		{"an expiry in a year and two days", "expires_at", `"2027-01-12T15:30:00Z"`, "max"},
		{"an expiry in the year 9999", "expires_at", `"9999-12-31T23:59:59Z"`, "max"},
		{"an expiry in words", "expires_at", `"tomorrow"`, "date_time"},
		{"an expiry that is a day", "expires_at", `"2026-01-11"`, "date_time"},
		{"an expiry in February", "expires_at", `"2026-02-30T00:00:00Z"`, "date_time"},
		{"an expiry that is a number", "expires_at", "1768089600", "type"},
		{"no reason", "reason", "", "required"},
		{"reason null", "reason", "null", "required"},
		{"reason empty", "reason", `""`, "not_blank"},
		{"reason blank", "reason", `"   "`, "not_blank"},
		{"reason of 501", "reason", quoted(strings.Repeat("é", 501)), "max"},
		{"reason of two lines", "reason", `"a\nb"`, "printable"},
		{"reason with NUL", "reason", `"\u0000"`, "printable"},
		{"reason a number", "reason", "1", "type"},
		{"an unknown member", "created_by", `"me"`, "unknown_field"},
	} {
		all = append(all, badInput{name: "addition: " + c.name, target: usageOf + "/budget/additions", body: replaceMember(good, c.member, c.value), want: "invalid-request /" + c.member + " " + c.rule})
	}
	for _, c := range []struct{ name, body, want string }{
		{"no body", ``, "malformed-json - required"},
		{"no reason", `{}`, "invalid-request /reason required"},
		{"reason null", `{"reason":null}`, "invalid-request /reason required"},
		{"reason blank", `{"reason":" "}`, "invalid-request /reason not_blank"},
		{"reason of 501", `{"reason":"` + strings.Repeat("x", 501) + `"}`, "invalid-request /reason max"},
		{"reason of two lines", `{"reason":"a\r\nb"}`, "invalid-request /reason printable"},
		{"reason a list", `{"reason":["x"]}`, "invalid-request /reason type"},
		{"tokens", `{"reason":"x","tokens":5}`, "invalid-request /tokens unknown_field"},
	} {
		all = append(all, badInput{name: "reset: " + c.name, target: usageOf + "/usage/reset", body: c.body, want: c.want})
	}
	return all
}

// badHistories breaks the parameters of the reads.
func badHistories() (all []badInput) {
	for query, places := range map[string]string{
		"/usage?day=2026-01-10":                                         "?day unknown_parameter",
		"/usage/history?window=week":                                    "?window enum",
		"/usage/history?window=":                                        "?window enum",
		"/usage/history?group_by=agent":                                 "?group_by enum",
		"/usage/history?group_by=":                                      "?group_by enum",
		"/usage/history?group_by=model&group_by=kind":                   "?group_by repeated",
		"/usage/history?from=yesterday":                                 "?from date_time",
		"/usage/history?from=":                                          "?from date_time",
		"/usage/history?from=2026-13-01":                                "?from date_time",
		"/usage/history?from=2026-02-30":                                "?from date_time",
		"/usage/history?from=2026-1-1":                                  "?from date_time",
		"/usage/history?from=1768089600":                                "?from date_time",
		"/usage/history?from=2026-01-10T15:00":                          "?from date_time",
		"/usage/history?from=2026-01-10T15:00:00":                       "?from date_time",
		"/usage/history?from=2026-01-10T24:00:00Z":                      "?from date_time",
		"/usage/history?from=2026-01-10T15:00:00+01:00":                 "?from date_time", // a + is a space
		"/usage/history?from=2026-01-10%00":                             "?from printable",
		"/usage/history?from=20260-01-10":                               "?from date_time",
		"/usage/history?to=never":                                       "?to date_time",
		"/usage/history?from=2026-01-11":                                "?from range", // after now
		"/usage/history?from=2026-01-10&to=2026-01-10":                  "?from range",
		"/usage/history?from=2026-01-10&to=2026-01-09":                  "?from range",
		"/usage/history?from=2025-11-20":                                "?from range", // 1,240 hours
		"/usage/history?window=day&from=2023-01-01":                     "?from range", // 1,106 days
		"/usage/history?from=0000-01-01&to=9999-12-31":                  "?from range",
		"/usage/history?window=day&from=0000-01-01":                     "?from range",
		"/usage/history?group_by=task&from=2025-12-01":                  "?from range", // 40 days
		"/usage/history?group_by=task&window=day&from=2025-01-08":       "?from range", // 367 days
		"/usage/history?top=5":                                          "?top requires",
		"/usage/history?group_by=kind&top=0":                            "?top min",
		"/usage/history?group_by=kind&top=101":                          "?top max",
		"/usage/history?group_by=kind&top=ten":                          "?top type",
		"/usage/history?group_by=kind&top=99999999999999999999":         "?top max",
		"/usage/history?until=2026-01-10":                               "?until unknown_parameter",
		"/usage/history?window=week&group_by=x&from=x":                  "?window enum, ?group_by enum, ?from date_time",
		"/reservations?state=open":                                      "?state enum",
		"/reservations?limit=0":                                         "?limit min",
		"/reservations?limit=1001":                                      "?limit max",
		"/reservations?limit=1.5":                                       "?limit type",
		"/reservations?cursor=":                                         "?cursor min",
		"/reservations?cursor=%2a":                                      "?cursor cursor",
		"/reservations?cursor=AA":                                       "?cursor cursor", // NUL
		"/reservations?cursor=_w":                                       "?cursor cursor", // no UTF-8
		"/reservations?cursor=" + strings.Repeat("A", 101):              "?cursor max",
		"/reservations?offset=5":                                        "?offset unknown_parameter",
		"/reservations/nothing?x=1":                                     "?x unknown_parameter",
		"/budget/additions?include_inactive=maybe":                      "?include_inactive type",
		"/budget/additions?include_inactive=":                           "?include_inactive type",
		"/budget/additions?include_inactive=true&include_inactive=true": "?include_inactive repeated",
		"/budget/additions?active=true":                                 "?active unknown_parameter",
		"/../../ledger/verify?from=2026-01-10":                          "?from unknown_parameter",
	} {
		target := usageOf + query
		if rest, ok := strings.CutPrefix(query, "/../.."); ok {
			target = "/api/v1" + rest
		}
		all = append(all, badInput{name: "read: " + query, method: http.MethodGet, target: target, want: "invalid-parameter " + places})
	}
	for _, target := range []string{"/usage", "/reservations", "/reservations/nothing/settle", "/budget/additions", "/usage/reset"} {
		all = append(all, badInput{name: "parameters of " + target, target: usageOf + target + "?dry_run=true", body: `{}`, want: "invalid-parameter ?dry_run unknown_parameter"})
	}
	return all
}

// badLedgerAddresses requests resources that do not exist.
func badLedgerAddresses() (all []badInput) {
	bodies := map[string]string{
		"POST /usage": `{"tokens":1}`, "POST /usage/reset": `{"reason":"x"}`, "POST /reservations": `{"tokens":1}`,
		"POST /reservations/r/settle": `{"tokens":1}`, "DELETE /reservations/r": "", "GET /reservations/r": "", "GET /reservations": "",
		"GET /usage": "", "GET /usage/history": "", "GET /budget/additions": "", "DELETE /budget/additions/a": "",
		"POST /budget/additions": `{"tokens":1,"expires_at":"2026-01-11T00:00:00Z","reason":"x"}`,
	}
	for route, body := range bodies {
		method, path, _ := strings.Cut(route, " ")
		for _, agent := range []string{"unknown", "ORCH-SCHOLAR", strings.Repeat("x", 65), "%00", "%ff", "..%2fnova", "x'%20OR%20'1'='1"} {
			all = append(all, badInput{name: route + " of the agent " + agent, method: method, target: "/api/v1/agents/" + agent + path, body: body, want: "not-found "})
		}
	}
	for _, id := range []string{"nothing", "%00", "%ff", strings.Repeat("9", 65), "01890a5d-ac96-774b-bcce-b302099a8057"} {
		all = append(all,
			badInput{name: "get the reservation " + id, method: http.MethodGet, target: usageOf + "/reservations/" + id, want: "not-found "},
			badInput{name: "release the reservation " + id, method: http.MethodDelete, target: usageOf + "/reservations/" + id, want: "not-found "},
			badInput{name: "settle the reservation " + id, target: usageOf + "/reservations/" + id + "/settle", body: `{"tokens":1}`, want: "not-found "},
			badInput{name: "take back the addition " + id, method: http.MethodDelete, target: usageOf + "/budget/additions/" + id, want: "not-found "})
	}
	for _, route := range []string{"PUT /usage", "PATCH /usage", "DELETE /usage", "GET /usage/reset", "POST /usage/history", "PUT /reservations/r", "GET /reservations/r/settle", "GET /budget/additions/a"} {
		method, path, _ := strings.Cut(route, " ")
		all = append(all, badInput{name: route, method: method, target: usageOf + path, want: "method-not-allowed "})
	}
	return append(all,
		badInput{name: "verify by POST", target: "/api/v1/ledger/verify", body: "{}", want: "method-not-allowed "},
		badInput{name: "the ledger itself", method: http.MethodGet, target: "/api/v1/ledger", want: "not-found "},
		badInput{name: "the budget itself", method: http.MethodGet, target: usageOf + "/budget", want: "not-found "},
		badInput{name: "release with a body", method: http.MethodDelete, target: usageOf + "/reservations/nothing", body: `{"x":1}`, want: "invalid-request "},
		badInput{name: "take back with a body", method: http.MethodDelete, target: usageOf + "/budget/additions/nothing", body: `{"x":1}`, want: "invalid-request "},
	)
}
