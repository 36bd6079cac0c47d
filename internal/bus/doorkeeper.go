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

// doorkeeper lets agents into the embedded server, keeps them to their own subjects, and
// shows those out whose token is not accepted any more.
type doorkeeper struct {
	secret       string
	authenticate func(ctx context.Context, token string) (agent string, err error)
	log          *slog.Logger

	mu sync.Mutex
	in map[uint64]guest // by the server's number of the connection
}

// guest is a connection that was let in.
type guest struct{ agent, token string }

// Check implements the server's Authentication.
func (d *doorkeeper) Check(c natsserver.ClientAuthentication) bool {
	shown := c.GetOpts()
	if subtle.ConstantTimeCompare([]byte(shown.Token), []byte(d.secret)) == 1 {
		return true // it is us
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
	d.in[c.GetID()] = guest{agent, token}
	return true
}

func (d *doorkeeper) verify(ctx context.Context, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	return d.authenticate(ctx, token)
}

// watch looks at the tokens of all connections again, every so often until ctx ends.
func (d *doorkeeper) watch(ctx context.Context, server *natsserver.Server, every time.Duration) {
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
		d.look(ctx, server)
	}
}

// look ends the connections whose token is not accepted any more or is another agent's
// by now. Each token is looked up once; where that cannot be done, its connections stay.
func (d *doorkeeper) look(ctx context.Context, server *natsserver.Server) {
	d.mu.Lock()
	in := maps.Clone(d.in)
	d.mu.Unlock()
	good := make(map[guest]bool, len(in))
	for id, g := range in {
		if server.GetClient(id) == nil { // it has gone by itself
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
		_ = server.DisconnectClientByID(id) // its error is that it has gone
		d.leave(id)
	}
}

func (d *doorkeeper) leave(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.in, id)
}

// isRefusal tells a token that is not accepted from one that cannot be looked up.
func isRefusal(err error) bool {
	return errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.AgentInactive)
}

// agentPermissions are those of one agent, or of all with *.
func agentPermissions(agent string) *natsserver.Permissions {
	own := "comet.agents." + agent + "."
	return &natsserver.Permissions{
		Publish:   &natsserver.SubjectPermission{Allow: []string{own + "outbox"}},
		Subscribe: &natsserver.SubjectPermission{Allow: []string{own + "inbox", own + "reply.>"}},
	}
}
