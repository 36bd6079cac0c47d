package app_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhoHasRegisteredItselfMayAskWithASignature (PROTOCOL_V5 §11) too, as without one, on
// this machine. Nobody else may whom only a key lets in: not an agent that somebody has
// registered, whatever its description says, nor one that somebody has taken over since.
func TestWhoHasRegisteredItselfMayAskWithASignature(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	do := func(method, path string, body map[string]any, want int) {
		t.Helper()
		status, answer, err := c.do(t.Context(), method, path, body)
		require.NoError(t, err)
		require.Equal(t, want, status, "%s", answer)
	}
	numbers := map[string]string{}
	own := dialTCP(t, a.V5Addr()).join(";name=digger")
	registerAgent(t, c, "hired")
	registerAgent(t, c, "v5-hired")
	do(http.MethodPatch, "/api/v1/agents/hired", map[string]any{"description": "registered itself over TCP"}, http.StatusOK)
	for _, id := range []string{"v5-digger", "hired", "v5-hired"} {
		do(http.MethodPut, "/api/v1/agents/"+id+"/key", map[string]any{"key": sharedKey}, http.StatusCreated)
		numbers[id] = get[struct{ Worker string }](t, c, "/api/v1/agents/"+id+"/key").Worker
	}
	require.Equal(t, own, numbers["v5-digger"])
	line := dialTCP(t, a.V5Addr())
	line.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|name=hired")
	require.Contains(t, line.readAll(), `reason=token;desc="the agent 'v5-hired' has not registered itself; it needs token="`, "and not that a token is wrong")
	turn := 0
	// asks is what an agent is answered that comes with a signature and asks for work.
	asks := func(id string) string {
		t.Helper()
		line := dialTCP(t, a.V5Addr())
		turn++
		line.send(signedLine(t, fmt.Sprintf("M%d|%s>O1|J|T0|-|-|-|0|S0|-|-", turn, numbers[id]), sharedKey))
		require.Contains(t, line.next(), "registered;id="+numbers[id])
		line.send("M9|" + numbers[id] + ">O1|R|-|-|-|-|0|-|-|call=custom:nobody-does")
		return line.next()
	}
	require.Contains(t, asks("v5-digger"), "|F|E19|", "it may ask, and nobody offers it")
	require.Contains(t, asks("hired"), "|F|E90|0|-|-|reason=scope;")
	require.Contains(t, asks("v5-hired"), "|F|E90|0|-|-|reason=scope;")
	do(http.MethodPatch, "/api/v1/agents/v5-digger", map[string]any{"description": "somebody's"}, http.StatusOK)
	require.Contains(t, asks("v5-digger"), "|F|E90|0|-|-|reason=scope;")
}
