package bus

import (
	"context"
	"crypto/subtle"
	"log/slog"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// doorkeeper lets agents into the embedded server and keeps them to their own subjects.
type doorkeeper struct {
	secret       string
	authenticate func(ctx context.Context, token string) (agent string, err error)
	log          *slog.Logger
}

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
	ctx, cancel := context.WithTimeout(context.Background(), authTimeout)
	defer cancel()
	agent, err := d.authenticate(ctx, token)
	if err != nil || agent == "" {
		d.log.Info("an agent's connection to NATS was refused", "remote", c.RemoteAddress(), "error", err)
		return false
	}
	c.RegisterUser(&natsserver.User{Username: agent, Permissions: agentPermissions(word(agent))})
	return true
}

// agentPermissions are those of one agent, or of all with *.
func agentPermissions(agent string) *natsserver.Permissions {
	own := "comet.agents." + agent + "."
	return &natsserver.Permissions{
		Publish:   &natsserver.SubjectPermission{Allow: []string{own + "outbox"}},
		Subscribe: &natsserver.SubjectPermission{Allow: []string{own + "inbox", own + "reply.>"}},
	}
}
