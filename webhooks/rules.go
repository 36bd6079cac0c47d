package webhooks

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/webhooks/signature"
)

// maxGrace is how long old keys may sign after a rotation.
const maxGrace = 7 * 24 * time.Hour

// checkURL validates a URL as far as possible without name resolution; addresses are checked at
// every connection. Path and query may contain a secret, so no message repeats them.
func (w *Webhooks) checkURL(v *errs.Violations, text string) {
	refuse := func(rule, sentence string) { v.Add(errs.InvalidRequest, "/url", rule, "%s", sentence) }
	if len(text) > models.MaxWebhookURL {
		v.Add(errs.InvalidRequest, "/url", "max", "url must have at most %d bytes, not %d", models.MaxWebhookURL, len(text))
		return
	}
	u, err := url.Parse(text)
	switch {
	case strings.ContainsFunc(text, unicode.IsSpace):
		refuse("url", "url must not hold blanks; write %20")
	case err != nil:
		refuse("url", "url cannot be read as a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		refuse("url", "url must be absolute and begin with https:// or http://")
	case u.Hostname() == "":
		refuse("url", "url must name a host")
	case !goodPort(u):
		refuse("url", "url must have a port of 1 to 65535, or none")
	case u.User != nil:
		refuse("credentials", "url must not hold a user or password; deliveries are signed instead")
	case strings.Contains(text, "#"):
		refuse("fragment", "url must not have a fragment, which is never sent")
	case w.opts.HTTPSOnly && u.Scheme != "https":
		refuse("https", "url must begin with https://; this server delivers to nothing else")
	default:
		if err := w.opts.Guard.CheckHost(u.Hostname()); err != nil {
			v.Add(errs.AddressRefused, "/url", "address", "%s", errs.From(err).Detail)
		}
	}
}

func goodPort(u *url.URL) bool {
	if u.Port() == "" {
		return true
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

// checkEvents accepts the known event types.
func checkEvents(v *errs.Violations, events []models.EventType) {
	known := make([]string, 0, len(models.WebhookEvents()))
	for _, t := range models.WebhookEvents() {
		known = append(known, string(t))
	}
	for i, t := range events {
		if slices.Contains(known, string(t)) {
			continue
		}
		v.Add(errs.InvalidRequest, "/events/"+strconv.Itoa(i), "event", "%s is not an event; there are %s%s",
			input.Quote(string(t)), strings.Join(known, ", "), input.DidYouMean(string(t), known))
	}
}

// checkSecret parses a secret chosen by the client, "" to generate one.
func checkSecret(v *errs.Violations, text string) []byte {
	if text == "" {
		return signature.NewSecret()
	}
	secret, err := signature.ParseSecret(text)
	if err != nil {
		v.Add(errs.InvalidRequest, "/secret", "secret", "%s", errs.From(err).Detail)
	}
	return secret
}

// checkFilter validates the agent filter.
func checkFilter(v *errs.Violations, agentID *string, subtree bool, exists func(id string) (bool, error)) error {
	if subtree && agentID == nil {
		v.Add(errs.InvalidRequest, "/subtree", "agent_id", "subtree says that the agents below agent_id count too, so it needs agent_id")
	}
	if agentID == nil || v.Has("/agent_id") {
		return nil
	}
	found, err := exists(*agentID)
	if err == nil && !found {
		v.Add(errs.InvalidRequest, "/agent_id", "exists", "there is no agent %q", *agentID)
	}
	return err
}
