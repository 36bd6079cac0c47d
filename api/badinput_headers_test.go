package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

// badAddresses requests agents and tokens with invalid ids.
func badAddresses() []badInput {
	address := func(method, target, want string) badInput {
		name := method + " " + target
		if len(name) > 60 {
			name = fmt.Sprintf("%s… (%d)", name[:60], len(target))
		}
		return badInput{name: "address: " + name, method: method, target: target, want: want}
	}
	all := []badInput{
		address("GET", "/api/v1/agents/", "not-found "),
		address("GET", "/api/v1/agents//audit", "not-found "),
		address("GET", "/api/v1//agents", "not-found "),
		address("GET", "/API/V1/agents", "not-found "),
		address("GET", "/api/v1/agents/nova/", "not-found "),
		address("GET", "/api/v1/agents/../tokens", "not-found "),
		address("GET", "/api/v1/agents/nova%2Faudit", "not-found "),
		address("GET", "/api/v1/agents/orch%2dscholar", "200"),
		address("GET", "/api/v1/agents/%6eova", "200"),
		address("POST", "/api/v1/agents/nova", "method-not-allowed "),
		address("PUT", "/api/v1/agents", "method-not-allowed "),
		address("OPTIONS", "/api/v1/agents", "method-not-allowed "),
		address("TRACE", "/api/v1/agents", "method-not-allowed "),
		address("GET", "/api/v1/tokens/unknown/rotate", "method-not-allowed "),
		address("POST", "/api/v1/tokens/unknown/rotate", "not-found "),
		address("DELETE", "/api/v1/tokens/unknown", "not-found "),
	}
	patch := func(id string) badInput {
		c := address("PATCH", "/api/v1/agents/"+id, "not-found ")
		c.body = `{"name":"x"}`
		return c
	}
	for _, id := range []string{
		"NOVA", "nova%20", "%00", "nova%00", "%FF", "%ff", "%C0%AF", "%ED%A0%80", "%0D%0AX-Admin:%201", "..%2F..%2Fetc%2Fpasswd", "%2e%2e",
		"%27%20OR%201=1--", "%25s%25n", "%F0%9F%A4%96", "*", "null", "-1", strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("%41", 5000),
	} {
		all = append(all,
			address("GET", "/api/v1/agents/"+id, "not-found "),
			address("DELETE", "/api/v1/agents/"+id, "not-found "),
			address("GET", "/api/v1/agents/"+id+"/audit", "not-found "),
			address("GET", "/api/v1/tokens/"+id, "not-found "),
			patch(id),
		)
	}
	return all
}

// badHeaders breaks the headers that are read.
func badHeaders() []badInput {
	create := func(name, want string, header ...string) badInput {
		return badInput{name: "header: " + name, target: "/api/v1/agents", body: goodDraft, header: header, want: want}
	}
	patch := func(name, want string, header ...string) badInput {
		return badInput{name: "header: " + name, method: "PATCH", target: "/api/v1/agents/patch-me", body: `{"name":"x"}`, header: header, want: want}
	}
	get := func(name, want string, header ...string) badInput {
		return badInput{name: "header: " + name, method: "GET", target: "/api/v1/agents/nova", header: header, want: want}
	}
	return []badInput{
		get("no Authorization", "unauthenticated ", "Authorization", ""),
		get("Authorization without a token", "unauthenticated ", "Authorization", "Bearer"),
		get("Authorization with a blank token", "unauthenticated ", "Authorization", "Bearer  "),
		get("Authorization with a token alone", "unauthenticated ", "Authorization", "0123456789abcdef0123456789abcdef"),
		get("Authorization of another scheme", "unauthenticated ", "Authorization", "Basic YWRtaW46YWRtaW4="),
		get("Authorization twice", "unauthenticated ", "Authorization", "Bearer a", "Authorization", "Bearer b"),
		get("Authorization with two tokens", "unauthenticated ", "Authorization", "Bearer a, Bearer b"),
		get("Authorization of 513 characters", "unauthenticated ", "Authorization", "Bearer "+strings.Repeat("a", 513)),
		get("Authorization with SQL", "unauthenticated ", "Authorization", "Bearer ' OR '1'='1"),
		get("Authorization that is not UTF-8", "unauthenticated ", "Authorization", "Bearer \xff\xfe"),
		get("another method in a header", "200", "X-HTTP-Method-Override", "DELETE"),
		get("If-None-Match that is none", "200", "If-None-Match", "1"),
		get("a range", "200", "Range", "bytes=0-10"),

		create("no Content-Type", "unsupported-media-type Content-Type: media_type", "Content-Type", ""),
		create("Content-Type text", "unsupported-media-type Content-Type: media_type", "Content-Type", "text/plain"),
		create("Content-Type of a form", "unsupported-media-type Content-Type: media_type", "Content-Type", "multipart/form-data; boundary=x"),
		create("Content-Type that is none", "unsupported-media-type Content-Type: media_type", "Content-Type", "json"),
		create("Content-Type cut short", "unsupported-media-type Content-Type: media_type", "Content-Type", "application/json; charset"),
		create("Content-Type in Latin-1", "unsupported-media-type Content-Type: media_type", "Content-Type", "application/json; charset=latin1"),
		create("Content-Type of JSON lines", "unsupported-media-type Content-Type: media_type", "Content-Type", "application/x-ndjson"),
		create("Content-Type of a merge patch", "unsupported-media-type Content-Type: media_type", "Content-Type", "application/merge-patch+json"),
		create("Content-Type in capitals", "201", "Content-Type", "Application/JSON; Charset=UTF-8"),
		create("Content-Encoding gzip", "unsupported-media-type Content-Encoding: identity", "Content-Encoding", "gzip"),
		create("Content-Encoding identity", "201", "Content-Encoding", "identity"),

		create("Idempotency-Key empty", "invalid-header Idempotency-Key: idempotency_key", "Idempotency-Key", " "),
		create("Idempotency-Key of 255", "201", "Idempotency-Key", strings.Repeat("k", 255)),
		create("Idempotency-Key of 256", "invalid-header Idempotency-Key: idempotency_key", "Idempotency-Key", strings.Repeat("k", 256)),
		create("Idempotency-Key of two words", "invalid-header Idempotency-Key: idempotency_key", "Idempotency-Key", "a b"),
		create("Idempotency-Key of two lines", "invalid-header Idempotency-Key: idempotency_key", "Idempotency-Key", "a", "Idempotency-Key", "b"),
		create("Idempotency-Key in emoji", "invalid-header Idempotency-Key: idempotency_key", "Idempotency-Key", "🔑"),
		create("Idempotency-Key with SQL", "201", "Idempotency-Key", "';DROP/**/TABLE/**/idempotency;--"),

		patch("If-Match without quotes", "invalid-header If-Match: entity_tag", "If-Match", "1"),
		patch("If-Match with one quote", "invalid-header If-Match: entity_tag", "If-Match", `"1`),
		patch("If-Match empty", "invalid-header If-Match: entity_tag", "If-Match", " "),
		patch("If-Match with a star among tags", "invalid-header If-Match: entity_tag", "If-Match", `*, "1.a"`),
		patch("If-Match with a space in a tag", "invalid-header If-Match: entity_tag", "If-Match", `"1. a"`),
		patch("If-None-Match without quotes", "invalid-header If-None-Match: entity_tag", "If-None-Match", "x"),
		patch("Content-Type of a JSON patch", "unsupported-media-type Content-Type: media_type", "Content-Type", "application/json-patch+json"),
		{name: "header: DELETE with a body", method: "DELETE", target: "/api/v1/agents/patch-me", body: `{"x":1}`, want: "invalid-request "},
		{name: "header: rotate with a body", target: "/api/v1/tokens/unknown/rotate", body: `{"x":1}`, want: "invalid-request "},
	}
}

// TestHeadersAreNotSplit sends requests that an HTTP client would not send: no response
// contains a header that the request injected.
func TestHeadersAreNotSplit(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{})
	for name, request := range map[string]string{
		"an address":        "GET /api/v1/agents/a%0d%0aX-Injected:%201 HTTP/1.1\r\nHost: x\r\n",
		"a parameter":       "GET /api/v1/agents?a%0d%0aX-Injected:%201 HTTP/1.1\r\nHost: x\r\n",
		"a request id":      "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: a%0d%0aX-Injected: 1\r\n",
		"a bare line feed":  "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\nX-Injected: 1\r\n",
		"a bare return":     "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\rX-Injected: 1\r\n",
		"a method":          "X-Injected:1 /healthz HTTP/1.1\r\nHost: x\r\n",
		"an unknown escape": "GET /api/v1/agents/%zz HTTP/1.1\r\nHost: x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, request+"Authorization: Bearer "+h.admin+"\r\nConnection: close\r\n\r\n")
			require.NoError(t, err)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Less(t, res.StatusCode, 500)
			require.Empty(t, res.Header.Get("X-Injected"))
			require.Regexp(t, `^[A-Za-z0-9._-]{0,64}$`, res.Header.Get("X-Request-Id"))
		})
	}
}
