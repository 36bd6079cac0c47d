package api_test

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// goodWebhook breaks no rule.
const goodWebhook = `{"url":"https://your-server.com/webhook","events":["agent.created"],"description":"What for","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",` +
	`"agent_id":"orch-scholar","subtree":true,"ordering":"agent","enabled":false,"asymmetric":true}`

// badWebhooks breaks the rules of a webhook's fields.
func badWebhooks() []badInput {
	hook := func(name, member, value, want string) badInput {
		return badInput{name: "webhook: " + name, target: "/api/v1/webhooks", body: replaceMember(goodWebhook, member, value), want: want}
	}
	all := []badInput{
		hook("no url", "url", "", "invalid-request /url required"),
		hook("a url null", "url", "null", "invalid-request /url required"),
		hook("a url of a number", "url", "1", "invalid-request /url type"),
		hook("a url with a query", "url", `"https://your-server.com:8443/a%20b?c=d&e=%23"`, "201"),
		hook("a url of 2,048 bytes", "url", quoted("https://a.example/"+strings.Repeat("x", 2030)), "201"),
		hook("a url of 2,049 bytes", "url", quoted("https://a.example/"+strings.Repeat("x", 2031)), "invalid-request /url max"),
		hook("a url of 3,000 bytes", "url", quoted("https://a.example/"+strings.Repeat("x", 2982)), "invalid-request /url max"),
		hook("a user and a password", "url", `"https://user:password@your-server.com/"`, "invalid-request /url credentials"),
		hook("a user", "url", `"https://user@your-server.com/"`, "invalid-request /url credentials"),
		hook("a fragment", "url", `"https://your-server.com/#here"`, "invalid-request /url fragment"),
		hook("an empty fragment", "url", `"https://your-server.com/#"`, "invalid-request /url fragment"),

		hook("no events", "events", "", "invalid-request /events required"),
		hook("events null", "events", "null", "invalid-request /events not_null"),
		hook("events of none", "events", "[]", "invalid-request /events min"),
		hook("events of a string", "events", `"agent.created"`, "invalid-request /events type"),
		hook("an event of a number", "events", `["agent.created",1]`, "invalid-request /events/1 type"),
		hook("an event null", "events", `[null]`, "invalid-request /events/0 not_null"),
		hook("an event empty", "events", `[""]`, "invalid-request /events/0 event"),
		hook("an event there is not", "events", `["agent.deleted"]`, "invalid-request /events/0 event"),
		hook("an event in capitals", "events", `["AGENT.CREATED"]`, "invalid-request /events/0 event"),
		hook("an event that is a star", "events", `["agents.*"]`, "invalid-request /events/0 event"),
		hook("an event that webhooks cannot receive", "events", `["token.created"]`, "invalid-request /events/0 event"),
		hook("the event of a test", "events", `["webhook.test"]`, "invalid-request /events/0 event"),
		hook("an event twice", "events", `["agent.created","agent.created"]`, "invalid-request /events/1 unique"),
		hook("33 events", "events", `["`+strings.Join(many("e", 33), `","`)+`"]`, "invalid-request /events max"+strings.Join(places(", /events/", " event", 33), "")),

		hook("a description of 500", "description", quoted(strings.Repeat("d", 500)), "201"),
		hook("a description of 501", "description", quoted(strings.Repeat("d", 501)), "invalid-request /description max"),
		hook("a description of two lines", "description", `"a\nb 🤖"`, "201"),
		hook("a description that rings", "description", `"a\u0007"`, "invalid-request /description printable"),
		hook("a description null", "description", "null", "invalid-request /description not_null"),
		hook("a description of a list", "description", "[]", "invalid-request /description type"),

		hook("no secret", "secret", "", "201"),
		hook("a secret null", "secret", "null", "201"),
		hook("a secret of a number", "secret", "7", "invalid-request /secret type"),
		hook("a secret empty", "secret", `""`, "invalid-request /secret secret"),
		hook("a secret without its prefix", "secret", `"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`, "invalid-request /secret secret"),
		hook("a secret of another prefix", "secret", `"whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`, "invalid-request /secret secret"),
		hook("a secret that is no base64", "secret", `"whsec_ä"`, "invalid-request /secret secret"),
		hook("a secret in the base64 of URLs", "secret", `"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_"`, "invalid-request /secret secret"),
		hook("a secret without its padding", "secret", `"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMQ"`, "invalid-request /secret secret"),
		hook("a secret of 23 bytes", "secret", `"whsec_MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM="`, "invalid-request /secret secret"),
		hook("a secret of 64 bytes", "secret", quoted("whsec_"+strings.Repeat("YWFh", 21)+"YQ=="), "201"),
		hook("a secret of 65 bytes", "secret", quoted("whsec_"+strings.Repeat("YWFh", 21)+"YWE="), "invalid-request /secret secret"),

		hook("subtree without an agent", "agent_id", "", "invalid-request /subtree agent_id"),
		hook("subtree with an agent null", "agent_id", "null", "invalid-request /subtree agent_id"),
		hook("an agent there is not", "agent_id", `"unknown"`, "invalid-request /agent_id exists"),
		hook("an agent that is none", "agent_id", `"No Agent"`, "invalid-request /agent_id agent_id"),
		hook("an agent of a number", "agent_id", "1", "invalid-request /agent_id type"),
		hook("an agent without those below", "subtree", "", "201"),
		hook("subtree of a string", "subtree", `"true"`, "invalid-request /subtree type"),
		hook("an ordering there is not", "ordering", `"strict"`, "invalid-request /ordering oneof"),
		hook("an ordering empty", "ordering", `""`, "invalid-request /ordering oneof"),
		hook("an ordering of a number", "ordering", "0", "invalid-request /ordering type"),
		hook("enabled of a number", "enabled", "1", "invalid-request /enabled type"),
		hook("asymmetric of a string", "asymmetric", `"ed25519"`, "invalid-request /asymmetric type"),
		hook("an id of its own", "id", `"mine"`, "invalid-request /id unknown_field"),
		hook("an unknown member", "retries", "3", "invalid-request /retries unknown_field"),
		{name: "webhook: nothing", target: "/api/v1/webhooks", body: "{}", want: "invalid-request /url required, /events required"},
		{name: "webhook: everything wrong", target: "/api/v1/webhooks",
			body: `{"url":"/hook","events":["x"],"agent_id":"unknown","subtree":true,"ordering":"x","secret":"x"}`,
			want: "invalid-request /ordering oneof, /url url, /events/0 event, /secret secret, /agent_id exists"},
		{name: "webhook: a list", target: "/api/v1/webhooks", body: "[]", want: "invalid-request - type"},
		{name: "webhook: a form", target: "/api/v1/webhooks", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, body: "url=x", want: "unsupported-media-type Content-Type: media_type"},
		{name: "webhook: 400 before 422", target: "/api/v1/webhooks", body: `{"url":"http://127.0.0.1/","events":[]}`, want: "invalid-request /events min"},
	}
	for _, text := range []string{
		"", " ", "your-server.com", "//your-server.com/", "/webhook", "ftp://your-server.com/", "mailto:me@your-server.com", "file:///etc/passwd", "javascript:alert(1)",
		"https://", "https:///webhook", "https://:443/", "http:your-server.com", "https://your-server.com:0/", "https://your-server.com:65536/", "https://your-server.com:http/",
		" https://your-server.com/", "https://your-server.com/ ", "https://your server.com/", "https://your-server.com/%zz", "https://[::1/", "https://your-server.com/a\tb",
	} {
		all = append(all, hook("a url of "+quoted(text), "url", strings.ReplaceAll(quoted(text), "\t", `\t`), "invalid-request /url url"))
	}
	return append(all, refusedAddresses()...)
}

// refusedAddresses are URLs of addresses that comet may not connect to, in all notations.
func refusedAddresses() (all []badInput) {
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3:8080", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1",
		"[::1]", "[::]", "[fe80::1]", "[fd00::1]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a00:1]", "[fd00:ec2::254]", "[2001:db8::1]",
		"localhost", "localhost:9090", "LOCALHOST", "localhost.", "a.localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1",
	} {
		all = append(all, badInput{
			name: "webhook: at " + host, target: "/api/v1/webhooks",
			body: replaceMember(goodWebhook, "url", quoted("http://"+host+"/webhook")), want: "address-refused /url address",
		})
	}
	return all
}

// many returns n different words.
func many(word string, n int) (all []string) {
	for i := range n {
		all = append(all, word+strings.Repeat("x", i))
	}
	return all
}

// places are numbered places of rules.
func places(before, after string, n int) (all []string) {
	for i := range n {
		all = append(all, before+strconv.Itoa(i)+after)
	}
	return all
}

// badHookRequests breaks the rules of what can be done with a webhook.
func badHookRequests() []badInput {
	const hook = "/api/v1/webhooks/unknown"
	opaque := func(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }
	get := func(target, want string) badInput {
		return badInput{name: "GET " + target, method: "GET", target: target, want: want}
	}
	post := func(name, path, body, want string) badInput {
		return badInput{name: "webhook: " + name, target: hook + path, body: body, want: want}
	}
	list := func(query, want string) badInput {
		return get("/api/v1/webhooks?"+query, "invalid-parameter "+want)
	}
	deliveries := func(query, want string) badInput {
		return get(hook+"/deliveries?"+query, "invalid-parameter "+want)
	}
	return []badInput{
		list("limit=0", "?limit min"), list("limit=1001", "?limit max"), list("limit=x", "?limit type"), list("offset=1", "?offset unknown_parameter"),
		list("cursor=%2B", "?cursor cursor"), list("cursor=", "?cursor min"), list("cursor="+opaque("\xff"), "?cursor cursor"), list("cursor="+opaque("\x00"), "?cursor cursor"),
		deliveries("status=failed", "?status enum"), deliveries("status=Dead", "?status enum"), deliveries("state=dead", "?state unknown_parameter"), deliveries("status=dead&status=pending", "?status repeated"),
		deliveries("event=agent.deleted", "?event enum"), deliveries("event=", "?event enum"),
		deliveries("since=yesterday", "?since date_time"), deliveries("since=2026-01-10", "?since date_time"), deliveries("since=", "?since date_time"), deliveries("since=1768059000", "?since date_time"),
		deliveries("since=2026-01-10T15:30:00+01:00", "?since date_time"), deliveries("until=2026-01-10T24:00:00Z", "?until date_time"), deliveries("until=2026-02-30T00:00:00Z", "?until date_time"),
		deliveries("since=2026-01-10T15:30:00Z&until=2026-01-10T15:30:00Z", "?until after"), deliveries("since=2026-01-10T15:30:00Z&until=2026-01-10T15:30:00%2B01:00", "?until after"),
		deliveries("limit=0&cursor=!&status=x", "?status enum, ?limit min, ?cursor cursor"),
		get(hook, "not-found "), get(hook+"/deliveries", "not-found "), get(hook+"/deliveries/x", "not-found "), get("/api/v1/webhooks/%00", "not-found "), get("/api/v1/webhooks/"+strings.Repeat("w", 65), "not-found "),
		get(hook+"?verbose=1", "invalid-parameter ?verbose unknown_parameter"),
		{name: "webhook: PATCH of an unknown one", method: "PATCH", target: hook, body: `{"enabled":true}`, want: "not-found "},
		{name: "webhook: PATCH of a list", method: "PATCH", target: hook, body: `[]`, want: "invalid-request - type"},
		{name: "webhook: PATCH of the secret", method: "PATCH", target: hook, body: `{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`, want: "invalid-request /secret unknown_field"},
		{name: "webhook: PATCH with wrong types", method: "PATCH", target: hook, body: `{"url":1,"events":{},"enabled":"yes"}`, want: "invalid-request /url type, /events type, /enabled type"},
		{name: "webhook: DELETE of an unknown one", method: "DELETE", target: hook, want: "not-found "},
		{name: "webhook: DELETE with a body", method: "DELETE", target: hook, body: `{"x":1}`, want: "invalid-request "},
		{name: "webhook: PUT", method: "PUT", target: hook, body: goodWebhook, want: "method-not-allowed "},
		post("rotation of an unknown one", "/rotate-secret", "", "not-found "),
		post("rotation of a list", "/rotate-secret", "[]", "invalid-request - type"),
		post("rotation to nothing", "/rotate-secret", `{"secret":"","grace_seconds":-1}`, "invalid-request /grace_seconds min, /secret secret"),
		post("rotation to no secret", "/rotate-secret", `{"secret":"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`, "invalid-request /secret secret"),
		post("an unknown member of a rotation", "/rotate-secret", `{"grace":"24h"}`, "invalid-request /grace unknown_field"),
		post("a negative grace period", "/rotate-secret", `{"grace_seconds":-1}`, "invalid-request /grace_seconds min"),
		post("a grace period of eight days", "/rotate-secret", `{"grace_seconds":691200}`, "invalid-request /grace_seconds max"),
		post("a grace period of a fraction", "/rotate-secret", `{"grace_seconds":0.5}`, "invalid-request /grace_seconds type"),
		post("a grace period in words", "/rotate-secret", `{"grace_seconds":"1d"}`, "invalid-request /grace_seconds type"),
		post("a test of an unknown one", "/test", "", "not-found "),
		post("a test with a body", "/test", `{"x":1}`, "invalid-request "),
		post("a redelivery of an unknown one", "/redeliver", `{"since":"2026-01-10T15:30:00Z"}`, "not-found "),
		post("a redelivery since nothing", "/redeliver", `{}`, "invalid-request /since required"),
		post("a redelivery since null", "/redeliver", `{"since":null}`, "invalid-request /since required"),
		post("a redelivery since a number", "/redeliver", `{"since":1768059000}`, "invalid-request /since type"),
		post("a redelivery since a day", "/redeliver", `{"since":"2026-01-10"}`, "invalid-request /since date_time"),
		post("a redelivery until a number", "/redeliver", `{"since":"2026-01-10T15:30:00Z","until":1768059000}`, "invalid-request /until type"),
		post("a redelivery until its beginning", "/redeliver", `{"since":"2026-01-10T15:30:00Z","until":"2026-01-10T15:30:00Z"}`, "invalid-request /until after"),
		post("a redelivery of unknown events", "/redeliver", `{"since":"2026-01-10T15:30:00Z","events":["agent.craeted"]}`, "invalid-request /events/0 event"),
		post("a redelivery of one event twice", "/redeliver", `{"since":"2026-01-10T15:30:00Z","events":["*","*"]}`, "invalid-request /events/1 unique"),
		post("a redelivery by state", "/redeliver", `{"since":"2026-01-10T15:30:00Z","status":"dead"}`, "invalid-request /status unknown_field"),
		post("a redelivery without a body", "/redeliver", "", "malformed-json - required"),
		post("a redelivery of a delivery of an unknown one", "/deliveries/x/redeliver", "", "not-found "),
		post("a delivery again, with a body", "/deliveries/x/redeliver", `{"x":1}`, "invalid-request "),
	}
}
