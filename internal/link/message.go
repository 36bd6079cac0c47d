package link

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// message takes one message of an agent, or of somebody who may send messages (Chiffon
// §Authentication, "REST").
func (l *Links) message(w http.ResponseWriter, r *http.Request, who visitor) error {
	if err := maySend(who.Principal); err != nil {
		return err
	}
	wait, asked := preferredWait(r.Header.Values("Prefer"))
	raw, err := readBody(w, r, MaxMessage)
	if err != nil {
		return err
	}
	unbind(w, wait)
	ctx, stop := l.patient(r.Context(), wait)
	defer stop()
	l.counts.heard("http")
	a := l.speech.Receive(ctx, who.Principal, raw, wait)
	if asked && !a.Refused {
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	}
	write(w, a)
	return nil
}

// maySend returns errs.MissingScope for somebody who is no agent and may not send for
// others.
func maySend(p models.Principal) error {
	if p.AgentID != nil || p.Has(models.ScopeMessagesSend) {
		return nil
	}
	return errs.New(errs.MissingScope, "the token %q lacks the scope %q and is bound to no agent", p.Name, models.ScopeMessagesSend).
		With("scope", models.ScopeMessagesSend)
}

// patient returns the context of a request that may wait. Once the lines are drained,
// it has only the time to come to its end.
func (l *Links) patient(parent context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(parent, wait+bodyTimeout)
	stop := func() bool { return true }
	if wait > 0 {
		stop = context.AfterFunc(l.lines.open, func() { time.AfterFunc(l.opts.CloseTimeout/2, cancel) })
	}
	return ctx, func() {
		stop()
		cancel()
	}
}

// preferredWait reads "wait=N" of Prefer (RFC 7240 §4.3), in seconds, at most maxWait.
// What cannot be read is passed over, as the RFC wants it.
func preferredWait(lines []string) (wait time.Duration, asked bool) {
	for preference := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, ok := strings.Cut(preference, "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
		if err == nil {
			return min(time.Duration(n)*time.Second, maxWait), true
		}
	}
	return 0, false
}
