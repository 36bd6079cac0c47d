package v5

import (
	"context"
	"time"

	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
)

// The same request may come on two connections at a time. One of them gets the name; the
// other one waits until there is a task by that name, so often and so long each time.
const (
	twinLooks = 40
	twinPause = 25 * time.Millisecond
)

// followTwin answers a request whose name another one has taken that has perhaps not been
// submitted yet. Where that is the same request, it is followed; taken is the refusal of
// any other.
func (d *Protocol) followTwin(ctx context.Context, s speaker, m wire.Message, wait time.Duration, taken error) (protocol.Reply, error) {
	for range twinLooks {
		t, err := d.earlier(ctx, s, m)
		switch {
		case err != nil:
			return protocol.Reply{}, err
		case t != nil:
			return d.follow(ctx, s, m, *t, wait)
		}
		select {
		case <-ctx.Done():
			return protocol.Reply{}, ctx.Err()
		case <-time.After(twinPause):
		}
	}
	return protocol.Reply{}, taken
}
