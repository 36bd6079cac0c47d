package link

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

// maxRegistration is how long a request to be pushed to may be, in bytes.
const maxRegistration = 16 << 10

// registration is the body of PUT …/push.
type registration struct {
	URL string `json:"url"`
	// Places is 1 where it is not said.
	Places *int `json:"places,omitzero"`
}

// registered is the answer to it, and without the secret to GET.
type registered struct {
	URL    string `json:"url"`
	Places int    `json:"places"`
	// Secret is what comet shows the agent as its bearer token; it is told this once.
	Secret    string    `json:"secret,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func registeredAs(t models.PushTarget) registered {
	return registered{URL: t.URL, Places: t.Places, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt}
}

// putPush has an agent's messages pushed to an address, in the place of one before.
func (l *Links) putPush(w http.ResponseWriter, r *http.Request, who visitor, agentID string) error {
	raw, err := readBody(w, r, maxRegistration)
	if err != nil {
		return err
	}
	var in registration
	if err := strictjson.Decode(raw, &in); err != nil {
		return err
	}
	t := models.PushTarget{AgentID: agentID, URL: in.URL, Dialect: l.speech.Name(), Places: 1, Secret: auth.NewSecret(), Owner: who.TokenID}
	if in.Places != nil {
		t.Places = *in.Places
	}
	if t.Places < 1 || t.Places > orchestrator.MaxPlaces {
		return errs.New(errs.InvalidRequest, "places must be 1 to %d, not %d", orchestrator.MaxPlaces, t.Places)
	}
	if err := l.checkURL(t.URL); err != nil {
		return err
	}
	if t, err = l.core.Work.SavePushTarget(r.Context(), t); err != nil {
		return err
	}
	l.push.look()
	out := registeredAs(t)
	out.Secret = t.Secret
	w.Header().Set("Cache-Control", "no-store")
	return writeJSON(w, out)
}

func (l *Links) getPush(w http.ResponseWriter, r *http.Request, _ visitor, agentID string) error {
	t, err := l.core.Work.PushTarget(r.Context(), agentID)
	if err != nil {
		return err
	}
	return writeJSON(w, registeredAs(t))
}

func (l *Links) deletePush(w http.ResponseWriter, r *http.Request, _ visitor, agentID string) error {
	dropped, err := l.core.Work.DropPushTarget(r.Context(), agentID, "")
	if err != nil {
		return err
	}
	if !dropped {
		return errs.New(errs.NotFound, "nothing is pushed to the agent %q", agentID)
	}
	l.push.look()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkURL judges where is to be pushed, as far as it can be told without a look-up;
// the rest is judged at every connection. An address may hold a secret, so no sentence
// repeats it.
func (l *Links) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "" || len(text) > models.MaxPushURL:
		return errs.New(errs.InvalidRequest, "url must have 1 to %d bytes, not %d", models.MaxPushURL, len(text))
	case err != nil || strings.ContainsFunc(text, unicode.IsSpace):
		return errs.New(errs.InvalidRequest, "url cannot be read as a URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || !goodPort(u.Port()):
		return errs.New(errs.InvalidRequest, "url must be of the form https://host/path or http://host/path")
	case u.User != nil || strings.Contains(text, "#"):
		return errs.New(errs.InvalidRequest, "url must hold no user, password or fragment")
	case l.opts.HTTPSOnly && u.Scheme != "https":
		return errs.New(errs.InvalidRequest, "url must begin with https://; this server pushes to nothing else")
	}
	return l.opts.Guard.CheckHost(u.Hostname())
}

func goodPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}
