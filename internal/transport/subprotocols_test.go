package transport_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/protocol/v5"
	"comet/internal/transport"
	"comet/store/storetest"
)

// TestASubprotocolThatThereIsNot is refused with what was offered and what there is.
func TestASubprotocolThatThereIsNot(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := openFixture(t, newBackend(t, db), nil, func(c *transport.Core) {
			c.Protocols = []protocol.Protocol{envelope.New(c.Work, nil), v5.New(c.Work, nil)}
		})
		a := h.do(t, "GET", "/api/agent/connect", h.agent(t, "ada"), "",
			"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Protocol", "v6, envelope.v9")
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Contains(t, a.body, `none of the subprotocols that were offered is spoken here: there is envelope.v1, v5, and \"v6, envelope.v9\" was offered`)
	})
}
