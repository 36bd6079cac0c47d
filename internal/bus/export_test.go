package bus

// Break loses the connection, which is then made again, as a fault of the line does.
func (b *Bus) Break() error { return b.conn.Load().ForceReconnect() }
