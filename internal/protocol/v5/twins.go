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
	duplicatePolls        = 40
	duplicatePollInterval = 25 * time.Millisecond
)

// followDuplicate answers a request whose name another one has taken that has perhaps not been
// submitted yet. Where that is the same request, it is followed; taken is the refusal of
// any other.
func (p *Protocol) followDuplicate(ctx context.Context, s sender, m wire.Message, wait time.Duration, taken error) (protocol.Reply, error) {
	for range duplicatePolls {
		t, err := p.findEarlierRequest(ctx, s, m)
		switch {
		case err != nil:
			return protocol.Reply{}, err
		case t != nil:
			return p.acceptedReply(ctx, s, m, *t, wait)
		}
		select {
		case <-ctx.Done():
			return protocol.Reply{}, ctx.Err()
		case <-time.After(duplicatePollInterval):
		}
	}
	return protocol.Reply{}, taken
}
