package transport

import (
	"cmp"
	"net/http"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
)

// maxPushBody is the longest registration, in bytes.
const maxPushBody = 16 << 10

// maxPushURL is the maximum length of an address in bytes.
const maxPushURL = 2048

// pushDraft is the request body of PUT …/push.
type pushDraft struct {
	// The address that receives the messages, at most 2,048 bytes, without user, password or
	// fragment.
	URL string `json:"url" validate:"required" format:"uri" example:"https://agent.example/in"`
	// How many tasks the agent runs at a time, 1 by default.
	Concurrency *int `json:"concurrency,omitzero" minimum:"1" maximum:"1000" example:"2"`
	// The protocol of the messages, by its name or its WebSocket subprotocol, the envelope protocol
	// by default.
	Protocol string `json:"protocol,omitzero" example:"envelope.v1"`
}

// pushRegistration is a registered address; only PUT returns the secret.
type pushRegistration struct {
	URL         string `json:"url" format:"uri" example:"https://agent.example/in"` // The address that comet sends messages to.
	Concurrency int    `json:"concurrency" example:"2"`                             // Maximum number of attempts at a time.
	Protocol    string `json:"protocol" example:"envelope"`                         // The protocol of the messages.
	// The bearer token that comet sends with each push. Only the response to PUT has it.
	Secret    string    `json:"secret,omitzero" example:"5f0c1d7e9b3a48d2a6c4e8f01b27d935"`
	CreatedAt time.Time `json:"created_at" example:"2026-01-19T04:21:04Z"`
	UpdatedAt time.Time `json:"updated_at" example:"2026-01-19T04:21:04Z"`
}

func registrationOf(t models.PushTarget) pushRegistration {
	return pushRegistration{URL: t.URL, Concurrency: t.Concurrency, Protocol: t.Protocol, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt}
}

// putPushRegistration registers the address to which an agent's messages are pushed. It replaces an earlier
// one.
//
//	@Summary		Register a push address
//	@Description	Registers an address to which comet posts each message of the agent, in the selected protocol, in a separate request with `Authorization: Bearer <secret>`. A 2xx response acknowledges the message; 410 ends the registration. comet first probes the address with `HEAD` or an empty `POST`. Every registration creates a new secret, which is returned only once. Addresses that are not public are refused unless `webhooks.allow_networks` permits them. Only tokens bound to an agent are accepted; any other is 5004.
//	@Param			address	body	pushDraft	true	"The push address"
//	@Success		200	{object}	pushRegistration	"Registered"
//	@Header			200	{string}	Cache-Control
//	@Failure		400	"5003: the body is malformed, the address is refused, or the agent has no type"
//	@Router			/api/agent/push [put]
func (s *Server) putPushRegistration(w http.ResponseWriter, r *http.Request, from httpkit.Identity, agentID string) error {
	raw, err := readBody(w, r, maxPushBody)
	if err != nil {
		return err
	}
	if from.Issued != nil {
		return errs.New(errs.InvalidRequest, "a push address ends with its token, so it needs a token that comet has created")
	}
	var in pushDraft
	if err := input.DecodeJSON(raw, &in); err != nil {
		return err
	}
	proto, err := s.protocols.required(in.Protocol)
	if err != nil {
		return err
	}
	t := models.PushTarget{AgentID: agentID, URL: in.URL, Protocol: proto.info.Name, Concurrency: *cmp.Or(in.Concurrency, new(1)), Secret: auth.NewSecret(), Owner: from.TokenID}
	if t.Concurrency < 1 || t.Concurrency > orchestrator.MaxConcurrency {
		return errs.New(errs.InvalidRequest, "concurrency must be 1 to %d, not %d", orchestrator.MaxConcurrency, t.Concurrency)
	}
	if _, err := s.opts.Guard.CheckURL(t.URL, maxPushURL, s.opts.HTTPSOnly); err != nil {
		return err
	}
	if _, err := s.acceptedAgent(r.Context(), proto, agentID); err != nil {
		return err
	}
	if t, err = s.core.Work.SavePushTarget(r.Context(), t); err != nil {
		return err
	}
	s.pushers.reload()
	out := registrationOf(t)
	out.Secret = t.Secret
	w.Header().Set("Cache-Control", "no-store")
	return writeJSON(w, out)
}

// getPushRegistration returns the address to which an agent's messages are pushed.
//
//	@Summary		Get the push address
//	@Description	Returns the registration without its secret. Only tokens bound to an agent are accepted; any other is 5004.
//	@Success		200	{object}	pushRegistration	"The registration"
//	@Failure		404	"5003: the agent has no push address"
//	@Router			/api/agent/push [get]
func (s *Server) getPushRegistration(w http.ResponseWriter, r *http.Request, _ httpkit.Identity, agentID string) error {
	t, err := s.core.Work.PushTarget(r.Context(), agentID)
	if err != nil {
		return err
	}
	return writeJSON(w, registrationOf(t))
}

// deletePushRegistration ends the registration.
//
//	@Summary		Delete the push address
//	@Description	The agent receives its messages when it connects in another way. Only tokens bound to an agent are accepted; any other is 5004.
//	@Success		204	"The registration was deleted"
//	@Failure		404	"5003: the agent has no push address"
//	@Router			/api/agent/push [delete]
func (s *Server) deletePushRegistration(w http.ResponseWriter, r *http.Request, _ httpkit.Identity, agentID string) error {
	deleted, err := s.core.Work.DeletePushTarget(r.Context(), agentID, "")
	if err != nil {
		return err
	}
	if !deleted {
		return errs.New(errs.NotFound, "the agent %q has no push target", agentID)
	}
	s.pushers.reload()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
