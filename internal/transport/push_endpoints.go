package transport

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/strictjson"
	"comet/models"
)

// maxPushBody is how long a request to be pushed to may be, in bytes.
const maxPushBody = 16 << 10

// pushDraft is the body of PUT …/push.
type pushDraft struct {
	// Where to push to: an address of at most 2,048 bytes, without user, password or fragment.
	URL string `json:"url" validate:"required" format:"uri" example:"https://agent.example/in"`
	// How many tasks the agent takes at a time, 1 where it is not said.
	Concurrency *int `json:"concurrency,omitzero" minimum:"1" maximum:"1000" example:"2"`
}

// pushRegistration is the answer to it, and without the secret to GET.
type pushRegistration struct {
	URL         string `json:"url" format:"uri" example:"https://agent.example/in"`
	Concurrency int    `json:"concurrency" example:"2"`
	// What comet shows the agent as its bearer token; it is told this once, by PUT.
	Secret    string    `json:"secret,omitzero" example:"5f0c1d7e9b3a48d2a6c4e8f01b27d935"`
	CreatedAt time.Time `json:"created_at" example:"2026-01-19T04:21:04Z"`
	UpdatedAt time.Time `json:"updated_at" example:"2026-01-19T04:21:04Z"`
}

func registrationOf(t models.PushTarget) pushRegistration {
	return pushRegistration{URL: t.URL, Concurrency: t.Places, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt}
}

// putPush has an agent's messages pushed to an address, in the place of one before.
//
//	@Summary		Register an address to push to
//	@Description	From now on comet posts the agent's messages to the address, each in a request of its own with `Authorization: Bearer <secret>`; 2xx acknowledges, 410 ends the registration. First it asks whether somebody is there, with `HEAD` or an empty `POST`. Every registration makes a new secret, which is told this once. Addresses that are not public are refused unless `webhooks.allow_networks` has them. For tokens that are bound to an agent; any other is 5004.
//	@ID				putPushRegistration
//	@Tags			agent door
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth
//	@Param			address	body	pushDraft	true	"Where to push to"
//	@Success		200	{object}	pushRegistration	"Registered"
//	@Header			200	{string}	Cache-Control
//	@Failure		400	"5003: the body cannot be read, the address is refused, or the agent has no type"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/push [put]
func (l *Server) putPush(w http.ResponseWriter, r *http.Request, who caller, agentID string) error {
	raw, err := readBody(w, r, maxPushBody)
	if err != nil {
		return err
	}
	var in pushDraft
	if err := strictjson.Decode(raw, &in); err != nil {
		return err
	}
	t := models.PushTarget{AgentID: agentID, URL: in.URL, Dialect: l.defaultProtocol.Name(), Places: 1, Secret: auth.NewSecret(), Owner: who.TokenID}
	if in.Concurrency != nil {
		t.Places = *in.Concurrency
	}
	if t.Places < 1 || t.Places > orchestrator.MaxPlaces {
		return errs.New(errs.InvalidRequest, "concurrency must be 1 to %d, not %d", orchestrator.MaxPlaces, t.Places)
	}
	if err := l.checkPushURL(t.URL); err != nil {
		return err
	}
	if _, err := l.acceptedAgent(r.Context(), l.defaultProtocol, agentID); err != nil {
		return err
	}
	if t, err = l.core.Work.SavePushTarget(r.Context(), t); err != nil {
		return err
	}
	l.pushers.reload()
	out := registrationOf(t)
	out.Secret = t.Secret
	w.Header().Set("Cache-Control", "no-store")
	return writeJSON(w, out)
}

// getPush says where an agent's messages are pushed to.
//
//	@Summary		Get the address that is pushed to
//	@Description	Without its secret. For tokens that are bound to an agent; any other is 5004.
//	@ID				getPushRegistration
//	@Tags			agent door
//	@Produce		json
//	@Security		BearerAuth
//	@Success		200	{object}	pushRegistration	"Where messages are pushed to"
//	@Failure		404	"5003: nothing is pushed to the agent"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/push [get]
func (l *Server) getPush(w http.ResponseWriter, r *http.Request, _ caller, agentID string) error {
	t, err := l.core.Work.PushTarget(r.Context(), agentID)
	if err != nil {
		return err
	}
	return writeJSON(w, registrationOf(t))
}

// deletePush ends pushing.
//
//	@Summary		End pushing
//	@Description	The agent is told by another way from now on, or not until it comes. For tokens that are bound to an agent; any other is 5004.
//	@ID				deletePushRegistration
//	@Tags			agent door
//	@Produce		json
//	@Security		BearerAuth
//	@Success		204	"Nothing is pushed any more"
//	@Failure		404	"5003: nothing is pushed to the agent"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/push [delete]
func (l *Server) deletePush(w http.ResponseWriter, r *http.Request, _ caller, agentID string) error {
	dropped, err := l.core.Work.DeletePushTarget(r.Context(), agentID, "")
	if err != nil {
		return err
	}
	if !dropped {
		return errs.New(errs.NotFound, "nothing is pushed to the agent %q", agentID)
	}
	l.pushers.reload()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkPushURL judges where is to be pushed, as far as it can be told without a look-up;
// the rest is judged at every connection. An address may hold a secret, so no sentence
// repeats it.
func (l *Server) checkPushURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "" || len(text) > models.MaxPushURL:
		return errs.New(errs.InvalidRequest, "url must have 1 to %d bytes, not %d", models.MaxPushURL, len(text))
	case err != nil || strings.ContainsFunc(text, unicode.IsSpace):
		return errs.New(errs.InvalidRequest, "url cannot be read as a URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || !isPort(u.Port()):
		return errs.New(errs.InvalidRequest, "url must be of the form https://host/path or http://host/path")
	case u.User != nil || strings.Contains(text, "#"):
		return errs.New(errs.InvalidRequest, "url must hold no user, password or fragment")
	case l.opts.HTTPSOnly && u.Scheme != "https":
		return errs.New(errs.InvalidRequest, "url must begin with https://; this server pushes to nothing else")
	}
	return l.opts.Guard.CheckHost(u.Hostname())
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}
