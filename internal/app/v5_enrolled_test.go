package app_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSignedV5RequestOfEnrolledAgent (PROTOCOL_V5 §11): an agent that enrolled itself may submit
// tasks with a signature too, on this machine. Other agents that are identified only by a key may
// not: neither an agent that a client registered, whatever its description says, nor one from which a
// client has removed the mark.
func TestSignedV5RequestOfEnrolledAgent(t *testing.T) {
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
	number := dialTCP(t, a.V5Addr()).join(";name=digger")
	registerAgent(t, c, "hired")
	registerAgent(t, c, "v5-hired")
	do(http.MethodPatch, "/api/v1/agents/hired", map[string]any{"description": "registered itself over TCP"}, http.StatusOK)
	for _, id := range []string{"v5-digger", "hired", "v5-hired"} {
		do(http.MethodPut, "/api/v1/agents/"+id+"/key", map[string]any{"key": sharedKey}, http.StatusCreated)
		numbers[id] = get[struct {
			V5ID string `json:"v5_id"`
		}](t, c, "/api/v1/agents/"+id+"/key").V5ID
	}
	require.Equal(t, number, numbers["v5-digger"])
	conn := dialTCP(t, a.V5Addr())
	conn.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|name=hired")
	require.Contains(t, conn.readAll(), `reason=token;desc="the agent 'v5-hired' has not registered itself; it needs token="`, "the refusal does not mention a wrong token")
	n := 0
	// reply returns the reply to a request of an agent that is identified by a signature.
	replyTo := func(id string) string {
		t.Helper()
		conn := dialTCP(t, a.V5Addr())
		n++
		conn.send(signedLine(t, fmt.Sprintf("M%d|%s>O1|J|T0|-|-|-|0|S0|-|-", n, numbers[id]), sharedKey))
		require.Contains(t, conn.next(), "registered;id="+numbers[id])
		conn.send("M9|" + numbers[id] + ">O1|R|-|-|-|-|0|-|-|call=custom:unoffered")
		return conn.next()
	}
	require.Contains(t, replyTo("v5-digger"), "|F|E19|", "it may submit, but no agent offers the capability")
	require.Contains(t, replyTo("hired"), "|F|E90|0|-|-|reason=scope;")
	require.Contains(t, replyTo("v5-hired"), "|F|E90|0|-|-|reason=scope;")
	do(http.MethodPatch, "/api/v1/agents/v5-digger", map[string]any{"self_registered": true, "description": "changed by a client"}, http.StatusOK)
	require.Contains(t, replyTo("v5-digger"), "|F|E19|")
	do(http.MethodPatch, "/api/v1/agents/hired", map[string]any{"self_registered": true}, http.StatusBadRequest)
	do(http.MethodPatch, "/api/v1/agents/v5-digger", map[string]any{"self_registered": false}, http.StatusOK)
	require.Contains(t, replyTo("v5-digger"), "|F|E90|0|-|-|reason=scope;")
}
