package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// body is a server that responds with it to every request.
type body struct {
	content []byte
	header  http.Header
	status  int
}

func (b body) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: b.status, Header: b.header, Body: io.NopCloser(bytes.NewReader(b.content)), Request: r}, nil
}

// FuzzCard: a card is refused with an error of its own, or has an interface; its signatures are verified, unverified or refused.
func FuzzCard(f *testing.F) {
	for _, seed := range []string{
		`{"name":"n","skills":[{"id":"s"}],"supportedInterfaces":[{"url":"http://a/","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t"}],"signatures":[{"protected":"eyJhbGciOiJFZERTQSIsImp3ayI6e30sImtpZCI6ImsiLCJqa3UiOiJodHRwOi8vYS9rIn0","signature":"AA"}]}`,
		`{"name":"n","url":"http://a/","protocolVersion":"0.3.0","preferredTransport":"HTTP+JSON","additionalInterfaces":[{"url":"https://b","transport":"JSONRPC"}]}`, `{"name":"","signatures":{}}`, `[]`, `{"name":"n","signatures":[null]}`,
	} {
		f.Add([]byte(seed), []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	}
	f.Fuzz(func(t *testing.T, raw, keys []byte) {
		result, err := VerifyCard(t.Context(), Options{Transport: body{keys, http.Header{}, http.StatusOK}}, "http://a/card", raw)
		require.True(t, err == nil && result != "" || errs.Is(err, errs.InvalidRequest), "%v", err)
		card, err := ParseCard(raw)
		if err != nil {
			require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
			return
		}
		require.NotEmpty(t, card.Interfaces)
		marked, err := ParseCard(Mark(raw, Verified))
		require.NoError(t, err)
		card.Signature = Verified
		require.Equal(t, card, marked)
		e, err := card.Endpoint("http://a/", false, func(string) error { return nil })
		if err == nil {
			_, err = New(Options{}, e).encode(t.Context(), request{operation: getTask, taskID: "t/../?"})
		}
		require.True(t, err == nil || errs.Is(err, errs.InvalidRequest), "%v", err)
	})
}

// FuzzResponse: any response is an event or an error of this package, in each version and binding, with and without a stream.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"m","data":[{"reason":"UNSUPPORTED_OPERATION"}]}}`,
		`{"error":{"code":404,"message":"m","details":[{"reason":"TASK_NOT_FOUND"}]}}`, `{"jsonrpc":"2.0","result":{"kind":"status-update","taskId":"t","status":{"state":"completed"}}}`, `{"id":"t","status":{}}`, `{"result":null}`, `<html>`,
		"id: 7\ndata: {\"result\":{\"message\":{\"messageId\":\"m\",\"role\":\"ROLE_AGENT\",\"parts\":[]}}}\n\n: comment\n\ndata: {\"artifactUpdate\":{\"artifact\":{\ndata: }}}\n\n", "data\n\nid\n\n", "\r\n\r\n",
	} {
		for flags := range byte(8) {
			f.Add([]byte(seed), flags, 200)
			f.Add([]byte(seed), flags, 503)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, flags byte, status int) {
		server := body{content, http.Header{"Retry-After": {"7"}}, status}
		e := a2a.AgentInterface{URL: "http://a/", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "1.0"}
		if flags&1 != 0 {
			e.ProtocolVersion = "0.3"
		} else if flags&2 != 0 {
			e.ProtocolBinding = a2a.TransportProtocolHTTPJSON
		}
		if flags&4 != 0 {
			server.header.Set("Content-Type", "text/event-stream")
		}
		c := New(Options{Transport: server, Timeout: time.Hour, Silence: time.Hour}, e)
		for _, do := range []func(ctx context.Context, each Each) error{
			func(ctx context.Context, each Each) error {
				got, err := c.Get(ctx, "t")
				if err == nil {
					err = each("", got)
				}
				return err
			},
			func(ctx context.Context, each Each) error {
				return c.Stream(ctx, a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("x")), each)
			},
		} {
			err := do(t.Context(), func(_ string, e a2a.Event) error {
				require.NotNil(t, e)
				_ = e.TaskInfo()
				return nil
			})
			if err != nil {
				_, known := errors.AsType[*Error](err)
				require.True(t, known, "%v", err)
			}
		}
	})
}
