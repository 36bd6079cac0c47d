package bus

// Break ends the connection like a network failure; the bus reconnects.
func (b *Bus) Break() error { return b.conn.Load().ForceReconnect() }
