package bus

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"maps"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"comet/internal/errs"
)

// agentAuth authenticates agents at the embedded server, restricts them to their own subjects,
// and disconnects agents whose token is no longer valid.
type agentAuth struct {
	secret       string
	authenticate func(ctx context.Context, token string) (agent string, err error)
	log          *slog.Logger

	mu sync.Mutex
	in map[uint64]agentConn // by the server's connection number
}

// agentConn is an authenticated connection.
type agentConn struct{ agent, token string }

// Check implements the server's Authentication.
func (d *agentAuth) Check(c natsserver.ClientAuthentication) bool {
	shown := c.GetOpts()
	if subtle.ConstantTimeCompare([]byte(shown.Token), []byte(d.secret)) == 1 {
		return true // our own connection
	}
	if d.authenticate == nil {
		c.RegisterUser(&natsserver.User{Username: "agents", Permissions: agentPermissions("*")})
		return true
	}
	token := shown.Token
	if token == "" {
		token = shown.Password
	}
	agent, err := d.verify(context.Background(), token)
	if err != nil || agent == "" {
		d.log.Info("an agent's connection to NATS was refused", "remote", c.RemoteAddress(), "error", err)
		return false
	}
	c.RegisterUser(&natsserver.User{Username: agent, Permissions: agentPermissions(word(agent))})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in[c.GetID()] = agentConn{agent, token}
	return true
}

func (d *agentAuth) verify(ctx context.Context, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	return d.authenticate(ctx, token)
}

// watch verifies the tokens of all connections periodically until ctx ends.
func (d *agentAuth) watch(ctx context.Context, server *natsserver.Server, every time.Duration) {
	if d.authenticate == nil {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.verifyAll(ctx, server)
	}
}

// verifyAll ends connections whose token is invalid or belongs to another agent now. Each token
// is verified once; if that fails, its connections stay.
func (d *agentAuth) verifyAll(ctx context.Context, server *natsserver.Server) {
	d.mu.Lock()
	in := maps.Clone(d.in)
	d.mu.Unlock()
	good := make(map[agentConn]bool, len(in))
	for id, g := range in {
		if server.GetClient(id) == nil { // it has disconnected
			d.leave(id)
			continue
		}
		still, known := good[g]
		if !known {
			agent, err := d.verify(ctx, g.token)
			still = err == nil && agent == g.agent || err != nil && !isRefusal(err)
			good[g] = still
		}
		if ctx.Err() != nil {
			return
		}
		if still {
			continue
		}
		d.log.Info("an agent's connection to NATS was ended, because its token is not accepted any more", "agent", g.agent)
		_ = server.DisconnectClientByID(id) // fails only if it has disconnected
		d.leave(id)
	}
}

func (d *agentAuth) leave(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.in, id)
}

// isRefusal distinguishes an invalid token from a failed verification.
func isRefusal(err error) bool {
	return errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.AgentInactive)
}

// agentPermissions returns the permissions of one agent, or of all with *.
func agentPermissions(agent string) *natsserver.Permissions {
	own := "comet.agents." + agent + "."
	return &natsserver.Permissions{
		Publish:   &natsserver.SubjectPermission{Allow: []string{own + "outbox"}},
		Subscribe: &natsserver.SubjectPermission{Allow: []string{own + "inbox", own + "reply.>"}},
	}
}
