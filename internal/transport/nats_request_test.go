package transport_test

import (
	"github.com/nats-io/nats.go"

	"comet/internal/bus"
	"comet/internal/testkit"
)

// requestOver publishes a message of an agent to a bus that listens, as a client of NATS does, and
// returns the reply. It ends with the server.
func requestOver(b *bus.Bus, agentID string, data []byte) ([]byte, error) {
	conn, err := nats.Connect("nats://"+b.Addr(), nats.CustomInboxPrefix("comet.agents."+agentID+".reply"),
		nats.NoReconnect(), nats.UseOldRequestStyle()) // only such a request ends with its connection
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	m, err := conn.Request(bus.AgentOutboxes.Of(agentID), data, testkit.Timeout)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}
