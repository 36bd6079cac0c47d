package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/places"
)

// isStream selects the answers that go on for as long as their client wants. They have
// no time limit, and are not compressed, because they must leave at once.
func isStream(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return r.URL.Path == eventsPath || strings.HasPrefix(r.URL.Path, tasksPath+"/") && strings.HasSuffix(r.URL.Path, "/output")
}

// unless leaves a middleware out for the requests that is selects.
func unless(is func(*http.Request) bool, middleware func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		within := middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if is(r) {
				next.ServeHTTP(w, r)
				return
			}
			within.ServeHTTP(w, r)
		})
	}
}

// streams bounds how many streams there are, of all tokens and of each, and ends them
// all when the server stops.
type streams struct {
	most, each int
	places     *places.Places
	over       context.Context
	drain      context.CancelFunc
}

// newStreams has room for most streams, a tenth of them for one token.
func newStreams(most int) *streams {
	s := &streams{most: most, each: max(most/10, 1)}
	s.places = places.New(s.most, s.each)
	s.over, s.drain = context.WithCancel(context.Background())
	return s
}

// take returns what gives the place of a token's stream back, or errs.Busy where there
// is none.
func (s *streams) take(tokenID string) (release func(), err error) {
	release, room := s.places.Take(tokenID)
	switch room {
	case places.Full:
		return nil, errs.New(errs.Busy, "the server serves %d streams already", s.most)
	case places.FullForOne:
		return nil, errs.New(errs.Busy, "the token has %d streams already", s.each)
	}
	return release, nil
}

// until returns a context that ends with ctx and when the server stops.
func (s *streams) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.over, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ending reports whether the server stops.
func (s *streams) ending() bool { return s.over.Err() != nil }

// stream is an answer that is written piece by piece.
type stream struct {
	w        http.ResponseWriter
	out      *http.ResponseController
	patience time.Duration
}

// newStream takes the time limits of the server off the connection: that for reading,
// too, because a connection whose read deadline has passed ends its request.
func (s *Server) newStream(w http.ResponseWriter) *stream {
	out := &stream{w: w, out: http.NewResponseController(innermost(w)), patience: s.opts.StreamPatience}
	_ = out.out.SetReadDeadline(time.Time{}) // only a test's writer cannot do this
	return out
}

// Write sends bytes within the time a client has to take them.
func (s *stream) Write(p []byte) (int, error) {
	_ = s.out.SetWriteDeadline(time.Now().Add(s.patience))
	return s.w.Write(p)
}

// flush sends what was written, or the headers alone.
func (s *stream) flush() error {
	_ = s.out.SetWriteDeadline(time.Now().Add(s.patience))
	return s.out.Flush()
}

// revoked judges the token of a stream anew, which may have been revoked, or have
// expired, since it began. A database that does not answer says nothing about it.
func (s *Server) revoked(r *http.Request) bool {
	secret, err := bearer(r.Header["Authorization"])
	if err == nil {
		_, err = s.auth.Verify(r.Context(), secret)
	}
	class := errs.CodeOf(err).Class()
	return err != nil && (class == errs.ClassUnauthenticated || class == errs.ClassForbidden)
}
