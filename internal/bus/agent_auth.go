package bus

import (
	"cmp"
	"context"
	"crypto/subtle"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"comet/internal/errs"
)

// authTimeout limits Authenticate.
const authTimeout = 2 * time.Second

// agentAuth authenticates agents at the embedded server, restricts them to their own subjects,
// and disconnects agents whose token is no longer valid.
type agentAuth struct {
	secret       string
	authenticate func(ctx context.Context, token string, client netip.Addr) (agent string, err error)
	log          *slog.Logger

	mu          sync.Mutex
	connections map[uint64]agentConn // by the server's connection number
}

// agentConn is an authenticated connection.
type agentConn struct {
	agent, token string
	client       netip.Addr
}

// Check implements the server's Authentication.
func (a *agentAuth) Check(c natsserver.ClientAuthentication) bool {
	credentials := c.GetOpts()
	if subtle.ConstantTimeCompare([]byte(credentials.Token), []byte(a.secret)) == 1 {
		return true // our own connection
	}
	if a.authenticate == nil {
		c.RegisterUser(&natsserver.User{Username: "agents", Permissions: agentPermissions("*")})
		return true
	}
	token := cmp.Or(credentials.Token, credentials.Password)
	remote, _ := netip.ParseAddrPort(c.RemoteAddress().String())
	agent, err := a.verify(context.Background(), token, remote.Addr())
	if err != nil || agent == "" {
		a.log.Info("an agent's connection to NATS was refused", "remote", c.RemoteAddress(), "error", err)
		return false
	}
	c.RegisterUser(&natsserver.User{Username: agent, Permissions: agentPermissions(word(agent))})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connections[c.GetID()] = agentConn{agent, token, remote.Addr()}
	return true
}

func (a *agentAuth) verify(ctx context.Context, token string, client netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	return a.authenticate(ctx, token, client)
}

// verifyAll ends connections whose token is invalid or belongs to another agent now. Each token
// is verified once; if it cannot be verified, its connections stay.
func (a *agentAuth) verifyAll(ctx context.Context, clients *natsserver.Server) {
	a.mu.Lock()
	connections := maps.Clone(a.connections)
	a.mu.Unlock()
	valid := make(map[agentConn]bool, len(connections))
	for id, c := range connections {
		if clients.GetClient(id) == nil { // it has disconnected
			a.remove(id)
			continue
		}
		isValid, known := valid[c]
		if !known {
			agent, err := a.verify(ctx, c.token, c.client)
			unverified := err != nil && !errs.Is(err, errs.Unauthenticated) && !errs.Is(err, errs.AgentInactive)
			isValid = unverified || err == nil && agent == c.agent
			valid[c] = isValid
		}
		if ctx.Err() != nil {
			return
		}
		if isValid {
			continue
		}
		a.log.Info("an agent's connection to NATS was ended, because its token is no longer valid", "agent", c.agent)
		_ = clients.DisconnectClientByID(id) // fails only if it has disconnected
		a.remove(id)
	}
}

func (a *agentAuth) remove(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.connections, id)
}

// agentPermissions returns the permissions of one agent, or of all with *.
func agentPermissions(agent string) *natsserver.Permissions {
	own := "comet.agents." + agent + "."
	return &natsserver.Permissions{
		Publish:   &natsserver.SubjectPermission{Allow: []string{own + "outbox"}},
		Subscribe: &natsserver.SubjectPermission{Allow: []string{own + "inbox", own + "reply.>"}},
	}
}
