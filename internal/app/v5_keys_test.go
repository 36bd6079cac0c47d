package app_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/testkit"
	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// sharedKey is the key of the agents.
const sharedKey = "a key that was agreed on"

// signedLine returns a line of system traffic with a signature.
func signedLine(t *testing.T, line, key string) string {
	t.Helper()
	signed, err := v5.Auth{Session: "S0", Nonce: "beef"}.Sign(line, []byte(key))
	require.NoError(t, err)
	return signed
}

// postLine posts a line with a token and returns the reply.
func postLine(t *testing.T, url, token, line string) string {
	t.Helper()
	return string(testkit.NewClient(t, url, token).Do(t, http.MethodPost, "/api/v5/messages", line, "Content-Type", "text/plain").Body)
}

// TestSignatureIsNotStored (PROTOCOL_V5 §11): a signature is in no row, file or log, whatever is
// wrong with it, and the key only in its own row. A replay is detected after a restart.
func TestSignatureIsNotStored(t *testing.T) {
	t.Parallel()
	cfg, log := configured(t, "sqlite"), &output{}
	cfg.HTTP.MaxAuthFailures, cfg.Transport.V5ReplayWindow = 1000, time.Hour
	opts := &app.Options{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	a := startWithV5(t, cfg, opts)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	own := registerAgent(t, c, "digger")
	status, body, err := c.do(t.Context(), http.MethodPut, "/api/v1/agents/digger/key", map[string]any{"key": sharedKey})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	replies := string(body)

	const join = "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:dig"
	taken := signedLine(t, join, sharedKey)
	require.Contains(t, postLine(t, a.URL(), own, taken), "registered;id=W1;")
	for _, line := range []string{
		taken, signedLine(t, join, "not the key that it has"), taken + "0", taken + ";x=1", strings.Replace(taken, ";auth=", "; auth=", 1),
		strings.Replace(taken, "S0:", "S1:", 1), strings.Replace(taken, "|S0|-|", "|S0|-|auth=S0:beef:00000000;", 1),
		strings.Replace(taken, "|-|caps", "|caps", 1), strings.Replace(taken, "caps=", "caps=a>b;caps=", 1),
	} {
		reply := postLine(t, a.URL(), own, line)
		require.Contains(t, reply, "|F|E", line)
		replies += reply
		tcp := dialTCP(t, a.V5Addr())
		tcp.send(line)
		replies += tcp.readAll()
	}
	require.Contains(t, replies, "reason="+codes.ReasonReplay)
	require.Contains(t, replies, "reason="+codes.ReasonSignature)
	require.NoError(t, a.Stop(t.Context()))
	for where, text := range map[string]string{"a row": rows(t, cfg), "a file": contents(t, cfg.Data), "the log": log.String(), "the replies": replies} {
		require.NotContains(t, text, ":beef:", where)
	}
	require.NotContains(t, log.String()+replies, sharedKey)
	require.NotContains(t, rows(t, cfg), sharedKey, "it is stored encrypted")

	again := startWithV5(t, cfg, opts)
	require.Contains(t, postLine(t, again.URL(), own, taken), "reason="+codes.ReasonReplay)
	require.NoError(t, again.Stop(context.Background()))
}
