package bus

import "context"

// Break ends the connection like a network failure; the bus reconnects.
func (b *Bus) Break() error { return b.conn.Load().ForceReconnect() }

// Request publishes data as a client of NATS does and returns the response.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) (Message, error) {
	m, err := b.conn.Load().RequestWithContext(ctx, subject, data)
	if err != nil {
		return Message{}, err
	}
	return Message{Subject: m.Subject, Data: m.Data}, nil
}
